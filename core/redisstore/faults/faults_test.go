// Package faults_test makes Redis fail in every way that a test can bring about, and shows what becomes of
// a limiter meanwhile and afterwards: one row of a table for each fault.
//
//	make test-faults                             all of it, in about three minutes, with the table at the end
//	go test -short -v ./core/redisstore/faults   the faults that take little time, as in make test
package faults_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/timerlag"
	"github.com/sashlimit/sash/core/redisstore"
)

// A decision takes no longer than its timeout and a little more. The table shows what it took; the tests
// grant so much more, because machines are busy, and busier with the race detector; and the slack of the clock.
const (
	timeout = 100 * time.Millisecond
	grace   = 50*time.Millisecond + 350*time.Millisecond
)

// A store that is back is noticed within 2 s or so: 1.5 s at most until it is asked again, and a second in which
// go-redis does not dial. The nodes of a cluster, or a Sentinel, agree later that all is well.
const (
	recovery  = 5 * time.Second
	agreement = 20 * time.Second
)

// longTimeout is for tests in which the store must decide, however busy the machine is.
var longTimeout = core.WithTimeout(10 * time.Second)

var (
	logs lockedBuffer // what limiters write to the log
	rows []*row

	clock *timerlag.Meter // how punctual this machine is
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.NewTextHandler(&logs, nil)))
	redis.SetLogger(silent{})
	clock = timerlag.Watch()
	code := m.Run()
	printTable(os.Stdout)
	os.Exit(code)
}

// slow leaves a test to make test-long.
func slow(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes long: make test-long runs it")
	}
}

// row is one fault.
type row struct {
	t          *testing.T
	fault, how string
	closers    []func() error

	timeout       time.Duration // of a decision
	admitted      []string
	within        time.Duration // recovered
	recovered     string
	unknown       int // units that the store does not know in the end, because it has not come back: Close says so
	before, after int // goroutines
	most          int // ... while there are requests
	late          time.Duration

	mu    sync.Mutex
	wrong bool
	on    bool // the fault
	all   tally
	keys  map[string]*tally
	heard map[string]int // what the observer was told
}

// tally is what became of some requests.
type tally struct {
	asked, admitted, degraded, failed int
	took                              []time.Duration
	entries                           []core.Entry // what was admitted, by our clock
	spans                             []span       // ... and between which instants
}

// span is the time of a decision.
type span struct{ began, ended time.Time }

// begin starts a row when the servers run: a row must leave no goroutine behind.
func begin(t *testing.T, fault, how string) *row {
	t.Helper()
	clock.Reset()
	return &row{
		t: t, fault: fault, how: how, timeout: timeout, within: recovery, recovered: "-",
		before: runtime.NumGoroutine(), keys: map[string]*tally{}, heard: map[string]int{},
	}
}

// end closes what the row has made and adds it to the table.
func (r *row) end() {
	r.t.Helper()
	for _, c := range slices.Backward(r.closers) {
		unknown := fmt.Sprintf("Close: %d units", r.unknown)
		if err := c(); err != nil && (r.unknown == 0 || !strings.Contains(err.Error(), unknown)) {
			r.errorf("close: %v", err)
		}
	}
	if !eventually(10*time.Second, func() bool {
		runtime.GC() // go-redis leaves a connection open that it dials while its client is closed
		r.after = runtime.NumGoroutine()
		return r.after <= r.before
	}) {
		stacks := make([]byte, 1<<20)
		r.errorf("%d goroutines, %d before:\n%s", r.after, r.before, stacks[:runtime.Stack(stacks, true)])
	}
	r.late = clock.Worst()
	if p := r.p99(); p > r.timeout+grace+clock.Slack() && r.all.degraded+r.all.failed > 0 {
		r.errorf("p99 of decisions is %v, with a timeout of %v; a timer was late by up to %v", p, r.timeout, r.late)
	}
	if r.wrong {
		r.t.Logf("the observer heard:\n%s", r.reports())
	}
	rows = append(rows, r)
}

// client makes one of go-redis' with nothing changed but what it must know, which is how most are.
func (r *row) client(opt *redis.Options) *redis.Client {
	rdb := redis.NewClient(opt)
	r.closers = append(r.closers, rdb.Close)
	return rdb
}

// connect makes 16 connections, or as many as the pool takes: ten for each core.
func (r *row) connect(rdb *redis.Client) {
	r.t.Helper()
	conns := make([]*redis.Conn, min(16, rdb.Options().PoolSize))
	for i := range conns {
		conns[i] = rdb.Conn()
		if err := conns[i].Ping(context.Background()).Err(); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, c := range conns {
		c.Close()
	}
}

func (r *row) cluster(addrs []string) *redis.ClusterClient {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	r.closers = append(r.closers, rdb.Close)
	return rdb
}

// limiter asks the store each time: it remembers no denials.
func (r *row) limiter(p core.Policy, client redisstore.Client, opts ...core.Option) *core.Limiter {
	r.t.Helper()
	return r.named("faults", p, client, opts...)
}

// named is limiter for a policy of its own.
func (r *row) named(name string, p core.Policy, client redisstore.Client, opts ...core.Option) *core.Limiter {
	r.t.Helper()
	opts = append([]core.Option{
		core.WithName(name),
		core.WithStore(redisstore.New(client)),
		core.WithDenyCache(0),
		core.WithObserver(r.observe),
	}, opts...)
	l, err := core.New(p, core.ByText(), opts...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.closers = append(r.closers, l.Close)
	return l
}

func (r *row) observe(_ context.Context, e core.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Err != nil {
		r.heard[e.Err.Error()]++
	}
}

// says requires that an error of the observer contains these words.
func (r *row) says(words ...string) {
	r.t.Helper()
	all := r.reports()
	for _, w := range words {
		if !strings.Contains(all, w) {
			r.errorf("the observer has not heard %q", w)
		}
	}
}

// reports returns all errors that the observer got.
func (r *row) reports() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all strings.Builder
	for text, n := range r.heard {
		fmt.Fprintf(&all, "%5d x %s\n", n, text)
	}
	return all.String()
}

func (r *row) errorf(format string, args ...any) {
	r.t.Helper()
	r.t.Errorf(r.fault+", "+r.how+": "+format, args...)
	r.wrong = true
}

// ask is one request.
func (r *row) ask(l *core.Limiter, key string, of *tally) core.Decision {
	began := time.Now()
	d, err := l.Allow(context.Background(), key)
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.most = max(r.most, runtime.NumGoroutine())
	tallies := []*tally{of}
	if r.on {
		if r.keys[key] == nil {
			r.keys[key] = new(tally)
		}
		tallies = append(tallies, &r.all, r.keys[key])
	}
	for _, t := range tallies {
		t.asked++
		t.took = append(t.took, now.Sub(began))
		switch {
		case err != nil:
			t.failed++
		case d.Allowed:
			t.admitted++
			t.entries = append(t.entries, core.Entry{At: now, Cost: 1})
			t.spans = append(t.spans, span{began, now})
		}
		if d.Degraded {
			t.degraded++
		}
	}
	return d
}

// warm asks n times before anything has happened to the store, and returns when the log holds what was asked for.
// Then this process remembers nothing of the key that the store does not: a machine may be so busy that the limiter
// has decided without the store.
func (r *row) warm(l *core.Limiter, key string, n int) *tally {
	r.t.Helper()
	for range 20 {
		of := r.burst(l, key, n)
		if !eventually(recovery, func() bool {
			d, err := l.Peek(context.Background(), key)
			return err == nil && !d.Degraded
		}) {
			r.t.Fatalf("%s: the store does not answer, before anything has happened to it", r.fault)
		}
		r.logged(l, key, of.admitted)
		if of.degraded == 0 {
			return of
		}
		// On a busy machine a request has timed out. What was decided without the store counts in this process.
		if err := l.Reset(context.Background(), key); err != nil {
			r.t.Fatal(err)
		}
	}
	r.t.Fatalf("%s: the store is too slow, before anything has happened to it", r.fault)
	return nil
}

// burst asks n times, one after the other.
func (r *row) burst(l *core.Limiter, key string, n int) *tally {
	of := new(tally)
	for range n {
		r.ask(l, key, of)
	}
	return of
}

// stream asks so often a second for that time, however long the answers take, as clients do. On a busy machine it asks
// as many times, if later. The function it gives waits for the last of them.
func (r *row) stream(l *core.Limiter, rate int, d time.Duration, key func(i int) string) (wait func() *tally) {
	of := new(tally)
	var wg sync.WaitGroup
	wg.Go(func() {
		began := time.Now()
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		all := int(d * time.Duration(rate) / time.Second)
		for i := 0; i < all; {
			// A ticker drops what a busy machine does not take in time.
			for ; i < all && i <= int(time.Since(began)*time.Duration(rate)/time.Second); i++ {
				k := key(i)
				wg.Go(func() { r.ask(l, k, of) })
			}
			<-tick.C
		}
	})
	return func() *tally {
		wg.Wait()
		return of
	}
}

// prompt requires that the store has decided within the default timeout, where the limiter has one that no busy machine
// reaches.
func (r *row) prompt() {
	r.t.Helper()
	if p := r.p99(); p > timeout+clock.Slack() {
		r.errorf("p99 of the store's decisions is %v, more than %v, and a timer was late by up to %v",
			p, timeout, clock.Worst())
	}
}

func only(key string) func(int) string { return func(int) string { return key } }

// inject makes the fault happen. From then on decisions are in the table.
func (r *row) inject(fault func()) {
	r.mu.Lock()
	r.on = true
	r.mu.Unlock()
	fault()
}

// lift ends the fault, and returns when the store decides about the key again.
func (r *row) lift(l *core.Limiter, key string, end func()) {
	r.t.Helper()
	end()
	began := time.Now()
	var d core.Decision
	var err error
	if !eventually(r.within, func() bool {
		d, err = l.Peek(context.Background(), key)
		return err == nil && !d.Degraded
	}) {
		r.errorf("not recovered after %v: %+v, %v", r.within, d, err)
	}
	r.recovered = short(time.Since(began))
	r.over()
}

// outage is a fault under 200 requests a second of "k", for a time. Meanwhile this process decides alone, and admits a
// quota. Afterwards the log has what is wanted, and the observer has heard what is wrong.
func (r *row) outage(
	l *core.Limiter, quota int, lasts time.Duration, inject, lift func(), logged int, says ...string,
) {
	r.t.Helper()
	r.inject(inject)
	during := r.stream(l, 200, lasts, only("k"))()
	r.degraded(during, true)
	r.exactly("", during.admitted, quota)
	r.says(says...)
	r.lift(l, "k", lift)
	r.logged(l, "k", logged)
}

func (r *row) over() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.on = false
}

// tellf adds to what the table says of admissions.
func (r *row) tellf(format string, args ...any) {
	r.admitted = append(r.admitted, fmt.Sprintf(format, args...))
}

// exactly and atMost compare what was admitted.
func (r *row) exactly(what string, got, want int) {
	r.t.Helper()
	r.tellf("%s%d of %d", what, got, want)
	if got != want {
		r.errorf("%s%d admitted, want %d", what, got, want)
	}
}

func (r *row) atMost(what string, got, most int) {
	r.t.Helper()
	r.tellf("%s%d <= %d", what, got, most)
	if got > most {
		r.errorf("%s%d admitted, want at most %d", what, got, most)
	}
}

// degraded checks that all requests, or none, were decided without the store.
func (r *row) degraded(of *tally, want bool) {
	r.t.Helper()
	if n := of.degraded + of.failed; want && n != of.asked || !want && n != 0 {
		wanted := map[bool]string{true: "all", false: "none"}[want]
		r.errorf("%d of %d decided without the store, %d failed; want %v", of.degraded, of.asked, of.failed, wanted)
	}
}

// bounded requires that requests without an answer do not pile up: there are 20 of them in the time of a decision, and
// the store has bounds for what goes on after that.
func (r *row) bounded() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	// Those that a late machine starts all at once are several for each request.
	if r.most > r.before+200+int(1000*clock.Slack().Seconds()) {
		r.errorf("%d goroutines, %d before, and a timer was late by up to %v", r.most, r.before, clock.Worst())
	}
}

// logged waits until the key's log holds so many units.
func (r *row) logged(l *core.Limiter, key string, want int) {
	r.t.Helper()
	var entries []core.Entry
	var err error
	if !eventually(10*time.Second, func() bool {
		entries, err = l.Log(context.Background(), key)
		return err == nil && units(entries) == want
	}) {
		r.errorf("the log of %s holds %d units, want %d; %v", key, units(entries), want, err)
	}
}

func units(entries []core.Entry) (n int) {
	for _, e := range entries {
		n += e.Cost
	}
	return n
}

func (r *row) p99() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all.took) == 0 {
		return 0
	}
	took := slices.Sorted(slices.Values(r.all.took))
	return took[(len(took)*99+99)/100-1]
}

func printTable(w io.Writer) {
	if len(rows) == 0 {
		return
	}
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "\nFAULT\tINJECTED HOW\tP99\tADMITTED OF QUOTA\tDEGRADED\tGOROUTINES\tMOST\tRECOVERED\tLATE")
	for _, r := range rows {
		fault, p99, degraded := r.fault, "-", fmt.Sprintf("%d of %d", r.all.degraded, r.all.asked)
		most := "-"
		if len(r.all.took) > 0 {
			p99, most = short(r.p99()), strconv.Itoa(r.most)
		}
		if r.all.failed > 0 {
			degraded = fmt.Sprintf("%d refused of %d", r.all.failed, r.all.asked)
		}
		if r.wrong {
			fault = "FAILED " + fault
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%s\t%d, %d\t%s\t%s\t%s\n",
			fault, r.how, p99, strings.Join(r.admitted, ", "), degraded,
			r.before, r.after, most, r.recovered, short(r.late))
	}
	tab.Flush()
	fmt.Fprintf(w, `
p99: of the decisions while the fault lasted; a decision may take %s unless it says otherwise, and a little more.
degraded: of these decisions, those without the store. goroutines: before and after, and most of them in between.
recovered: how long after the fault the store has decided again.
late: the worst delay of a timer on this machine meanwhile.
`, short(timeout))
}

// short is a duration of two or three digits.
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return strconv.Itoa(int(d.Round(time.Second)/time.Second)) + " s"
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= time.Millisecond:
		return strconv.Itoa(int(d.Round(time.Millisecond)/time.Millisecond)) + " ms"
	default:
		return strconv.Itoa(int(d.Round(time.Microsecond)/time.Microsecond)) + " us"
	}
}

// pass lets time go by, of which faults are made.
func pass(d time.Duration) { <-time.After(d) }

func eventually(within time.Duration, done func() bool) bool {
	for began := time.Now(); !done(); pass(5 * time.Millisecond) {
		if time.Since(began) > within+clock.Slack() {
			return false
		}
	}
	return true
}

// lockedBuffer is written to by many.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// silent keeps go-redis from telling what the table tells.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
