// Package faults_test makes Redis fail in every way that a test can bring about, and shows what becomes of
// a limiter meanwhile and afterwards: one row of a table for each fault.
//
//	make test-faults                         all of it, in about four minutes, with the table at the end
//	go test -v ./core/redisstore/faults      the faults that take little time, as in any run of the tests
//
// What `make test-faults` adds is asked for with SASH_FAULTS=1.
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
	"github.com/sashlimit/sash/core/redisstore"
)

// A decision takes no longer than its timeout and a little more. The table shows what it took; the tests
// grant so much more, because machines are busy, and busier with the race detector.
const (
	timeout = 100 * time.Millisecond
	grace   = 50*time.Millisecond + 350*time.Millisecond
)

// A store that is back is noticed within 2 s or so: 1.5 s at most until it is asked again, and a second in which
// go-redis does not dial. A cluster or a Sentinel takes longer to agree.
const recoveryGrace = 15 * time.Second

var (
	full = os.Getenv("SASH_FAULTS") != ""
	logs lockedBuffer // what limiters write to the log
	rows []*row
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.NewTextHandler(&logs, nil)))
	redis.SetLogger(silent{})
	code := m.Run()
	printTable(os.Stdout)
	os.Exit(code)
}

// slow leaves a test to `make test-faults`.
func slow(t *testing.T) {
	t.Helper()
	if !full {
		t.Skip("make test-faults runs it")
	}
}

// row is one fault.
type row struct {
	t          *testing.T
	fault, how string
	closers    []func() error

	admitted      []string
	recovered     string
	before, after int // goroutines

	mu    sync.Mutex
	on    bool // the fault
	all   tally
	heard map[string]int // what the observer was told
}

// tally is what became of some requests.
type tally struct {
	asked, admitted, degraded, failed int
	took                              []time.Duration
	entries                           []core.Entry // what was admitted, by our clock
}

// begin is called when the servers run: what comes after leaves no goroutine.
func begin(t *testing.T, fault, how string) *row {
	t.Helper()
	return &row{t: t, fault: fault, how: how, recovered: "-", before: runtime.NumGoroutine(), heard: map[string]int{}}
}

// end closes what the row has made and adds it to the table.
func (r *row) end() {
	r.t.Helper()
	for _, c := range slices.Backward(r.closers) {
		if err := c(); err != nil {
			r.t.Errorf("close: %v", err)
		}
	}
	if !eventually(10*time.Second, func() bool {
		r.after = runtime.NumGoroutine()
		return r.after <= r.before
	}) {
		stacks := make([]byte, 1<<20)
		r.t.Errorf("%d goroutines, %d before:\n%s", r.after, r.before, stacks[:runtime.Stack(stacks, true)])
	}
	if p := r.p99(); p > timeout+grace {
		r.t.Errorf("%s: p99 of decisions is %v, with a timeout of %v", r.fault, p, timeout)
	}
	rows = append(rows, r)
}

// client makes one of go-redis' with nothing changed but what it must know, which is how most are.
func (r *row) client(opt *redis.Options) *redis.Client {
	rdb := redis.NewClient(opt)
	r.closers = append(r.closers, rdb.Close)
	return rdb
}

func (r *row) cluster(addrs []string) *redis.ClusterClient {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	r.closers = append(r.closers, rdb.Close)
	return rdb
}

// limiter asks the store each time: it remembers no denials.
func (r *row) limiter(p core.Policy, client redisstore.Client, opts ...core.Option) *core.Limiter {
	r.t.Helper()
	opts = append([]core.Option{
		core.WithName("faults"),
		core.WithStore(redisstore.New(client)),
		core.WithDenyCache(0),
		core.WithObserver(r.observe),
	}, opts...)
	l, err := core.New(p, core.Global(), opts...)
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

// says requires that the observer has heard of the fault by these words.
func (r *row) says(words ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var all strings.Builder
	for text, n := range r.heard {
		fmt.Fprintf(&all, "\n%5d x %s", n, text)
	}
	for _, w := range words {
		if !strings.Contains(all.String(), w) {
			r.t.Errorf("%s: the observer has not heard %q, but%s", r.fault, w, all.String())
		}
	}
}

// ask is one request.
func (r *row) ask(l *core.Limiter, key string, of *tally) core.Decision {
	began := time.Now()
	d, err := l.Allow(context.Background(), key)
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	tallies := []*tally{of}
	if r.on {
		tallies = append(tallies, &r.all)
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
		}
		if d.Degraded {
			t.degraded++
		}
	}
	return d
}

// burst asks n times, one after the other.
func (r *row) burst(l *core.Limiter, key string, n int) *tally {
	of := new(tally)
	for range n {
		r.ask(l, key, of)
	}
	return of
}

// stream asks so often a second, however long the answers take, as clients do. The function it gives waits for the last of them.
func (r *row) stream(l *core.Limiter, rate int, d time.Duration, key func(i int) string) (wait func() *tally) {
	of := new(tally)
	var wg sync.WaitGroup
	wg.Go(func() {
		began := time.Now()
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for i := 0; time.Since(began) < d; {
			// A ticker drops what a busy machine does not take in time.
			for ; i <= int(time.Since(began)*time.Duration(rate)/time.Second); i++ {
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
	if !eventually(recoveryGrace, func() bool {
		d, err = l.Peek(context.Background(), key)
		return err == nil && !d.Degraded
	}) {
		r.t.Errorf("%s: not recovered after %v: %+v, %v", r.fault, recoveryGrace, d, err)
	}
	r.recovered = short(time.Since(began))
	r.over()
}

func (r *row) over() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.on = false
}

// exactly and atMost compare what was admitted.
func (r *row) exactly(what string, got, want int) {
	r.t.Helper()
	r.admitted = append(r.admitted, fmt.Sprintf("%s%d of %d", what, got, want))
	if got != want {
		r.t.Errorf("%s: %s%d admitted, want %d", r.fault, what, got, want)
	}
}

func (r *row) atMost(what string, got, most int) {
	r.t.Helper()
	r.admitted = append(r.admitted, fmt.Sprintf("%s%d <= %d", what, got, most))
	if got > most {
		r.t.Errorf("%s: %s%d admitted, want at most %d", r.fault, what, got, most)
	}
}

// all or none of some requests were decided without the store.
func (r *row) degraded(of *tally, want bool) {
	r.t.Helper()
	if n := of.degraded + of.failed; want && n != of.asked || !want && n != 0 {
		r.t.Errorf("%s: %d of %d decided without the store, %d failed; want %v", r.fault, of.degraded, of.asked, of.failed, map[bool]string{true: "all", false: "none"}[want])
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
		r.t.Errorf("%s: the log of %s holds %d units, want %d; %v", r.fault, key, units(entries), want, err)
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
	fmt.Fprintln(tab, "\nFAULT\tINJECTED HOW\tP99\tADMITTED\tDEGRADED\tGOROUTINES\tRECOVERED")
	for _, r := range rows {
		fault, degraded := r.fault, fmt.Sprintf("%d of %d", r.all.degraded, r.all.asked)
		if r.all.failed > 0 {
			degraded = fmt.Sprintf("%d refused of %d", r.all.failed, r.all.asked)
		}
		if r.t.Failed() {
			fault = "FAILED " + fault
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%s\t%d, %d\t%s\n", fault, r.how, short(r.p99()), strings.Join(r.admitted, ", "), degraded, r.before, r.after, r.recovered)
	}
	tab.Flush()
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
	for end := time.Now().Add(within); !done(); pass(5 * time.Millisecond) {
		if time.Now().After(end) {
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
