package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/nethttp"
)

// newOverridden makes the limiter of all processes of these tests.
func newOverridden(t *testing.T, addr string, opts ...core.Option) *core.Limiter {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	l, err := core.New(core.PerHour(5), core.Global(), append(opts, core.WithStore(redisstore.New(rdb)),
		core.WithName("overridden"), core.WithOverrides())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close()
		rdb.Close()
	})
	return l
}

// In another process an override decides within a second, until it ends, is removed, or Redis has lost it. While Redis
// does not answer it stays. A raise makes room by exactly the difference.
func TestOverrideOverTwoProcesses(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newOverridden(t, server.Addr())
	_, out := process(t, "TestOverriddenProcess", "SASH_OVERRIDDEN_REDIS="+server.Addr())
	// becomes reads what the process decides until its quota is another one, which it must be within a second.
	becomes := func(want, before int) {
		t.Helper()
		since := time.Now()
		for {
			asked, quota, left := readOverridden(t, out)
			switch {
			case quota == want:
				t.Logf("a quota of %d, %d left, after %v", quota, left, asked.Sub(since))
				return
			case quota != before || asked.Sub(since) > time.Second:
				t.Fatalf("a quota of %d after %v, want %d", quota, asked.Sub(since), want)
			}
		}
	}
	set := func(o core.Override) {
		t.Helper()
		if o.Until.IsZero() {
			o.Until = time.Now().Add(time.Hour)
		}
		if err := l.Override(t.Context(), "k", o); err != nil {
			t.Fatal(err)
		}
	}
	admitted := func(want int) {
		t.Helper()
		for n := 0; ; n++ {
			d, err := l.Allow(t.Context(), "k")
			if err != nil || d.Degraded {
				t.Fatal(d, err)
			}
			if !d.Allowed {
				if n != want {
					t.Errorf("%d admitted, want %d", n, want)
				}
				return
			}
		}
	}
	const denied = -1
	admitted(5)
	becomes(5, 5)
	set(core.Override{Limits: core.Limits{core.PerHour(8)}})
	becomes(8, 5)
	admitted(3)
	set(core.Override{Limits: core.Limits{core.PerHour(6)}})
	becomes(6, 8)
	admitted(0)
	set(core.Override{Denied: true})
	becomes(denied, 6)
	if err := l.RemoveOverride(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	becomes(5, denied)
	set(core.Override{Limits: core.Limits{core.PerHour(9)}, Until: time.Now().Add(2 * time.Second)})
	becomes(9, 5)
	for quota := 9; quota == 9; {
		_, quota, _ = readOverridden(t, out)
	}
	set(core.Override{Limits: core.Limits{core.PerHour(7)}})
	becomes(7, 5)
	server.Pause()
	for range 30 { // some of them were asked before
		if _, quota, _ := readOverridden(t, out); quota != 7 {
			t.Errorf("while Redis does not answer, a quota of %d, want 7", quota)
		}
	}
	server.Resume()
	if _, err := server.Do("FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	for quota := 7; quota == 7; { // it asks again within 1.5 s of the outage's end
		_, quota, _ = readOverridden(t, out)
	}
	// The same again has another version.
	set(core.Override{Limits: core.Limits{core.PerHour(7)}})
	becomes(7, 5)
}

func readOverridden(t *testing.T, out *bufio.Reader) (asked time.Time, quota, left int) {
	t.Helper()
	line, err := out.ReadString('\n')
	var at int64
	if n, _ := fmt.Sscanf(line, "at %d: %d, %d", &at, &quota, &left); n != 3 {
		t.Fatalf("%q, %v", line, err)
	}
	return time.UnixMicro(at), quota, left
}

// Record keeps entries for as long as the window of an override, and not only for that of the policy.
func TestRecordKeepsWhatAnOverrideCounts(t *testing.T) {
	t.Parallel()
	l, err := core.New(core.Limit{Quota: 9, Window: core.MinWindow}, core.Global(), core.WithOverrides(),
		core.WithStore(redisstore.New(start(t))), core.WithTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	o := core.Override{Limits: core.Limits{core.PerHour(2)}, Until: time.Now().Add(time.Hour)}
	if err := l.Override(t.Context(), "k", o); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed {
			t.Error(d, err)
		}
	}
	if _, err := l.Record(t.Context(), "k", 1); err != nil {
		t.Fatal(err)
	}
	if d, err := l.Allow(t.Context(), "k"); err != nil || d.Allowed || d.Limits()[0].Used != 3 {
		t.Errorf("%v, %v, %v; want a denial with 3 used", d, d.Limits(), err)
	}
}

func TestOverriddenProcess(t *testing.T) {
	addr := os.Getenv("SASH_OVERRIDDEN_REDIS")
	if addr == "" {
		return // only as a part of TestOverrideOverTwoProcesses
	}
	l := newOverridden(t, addr)
	for {
		asked := time.Now()
		d, err := l.Peek(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		quota := -1
		if states := d.Limits(); d.Overridden == nil || !d.Overridden.Denied {
			quota = states[0].Quota
		}
		fmt.Printf("at %d: %d, %d\n", asked.UnixMicro(), quota, d.Remaining)
		<-time.After(10 * time.Millisecond)
	}
}

const (
	fleetPause    = 5 * time.Second
	fleetInterval = 50 * time.Millisecond // between the requests of a process
)

// Fifty processes call a server that answers one of them 429 with Retry-After. Requests that begin a second later or
// more are not sent until the pause is over, and then they are, although the process that was told has died.
func TestPauseOfAFleet(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 10 seconds and 50 processes")
	}
	redisServer := redistest.Start(t)
	var mu sync.Mutex
	var early, all int
	var refused time.Time
	var refuse atomic.Bool
	var refusedProcess string
	over := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if refuse.CompareAndSwap(true, false) {
			refused, refusedProcess = time.Now(), r.Header.Get("Process")
			w.Header().Set("Retry-After", "5")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		if refused.IsZero() {
			return
		}
		at, err := time.Parse(time.RFC3339Nano, r.Header.Get("Began"))
		if err != nil {
			t.Error(err)
		}
		now := time.Now()
		switch all++; {
		case at.Sub(refused) < time.Second:
			early++
		case now.Sub(refused) < fleetPause-time.Millisecond:
			t.Errorf("a request that began %v after the refusal came after %v", at.Sub(refused), now.Sub(refused))
		case now.Sub(refused) > fleetPause+time.Second:
			select {
			case over <- struct{}{}:
			default:
			}
		}
	}))
	defer upstream.Close()
	processes := make(map[string]*os.Process)
	for n := range 50 {
		name := fmt.Sprint(n)
		c, out := process(t, "TestFleetProcess", "SASH_FLEET="+redisServer.Addr()+" "+upstream.URL+" "+name)
		if line, err := out.ReadString('\n'); line != "ready\n" {
			t.Fatalf("process %d: %q, %v", n, line, err)
		}
		processes[name] = c.Process
	}
	refuse.Store(true)
	for killed := false; ; {
		select {
		case <-over:
		case <-time.After(10 * time.Millisecond):
			mu.Lock()
			if name := refusedProcess; !killed && name != "" && time.Since(refused) > time.Second {
				killed = true
				processes[name].Kill()
			}
			mu.Unlock()
			continue
		case <-t.Context().Done():
			t.Fatal("no request was sent after the pause")
		}
		break
	}
	mu.Lock()
	defer mu.Unlock()
	t.Logf("%d requests came that began in the first second of the pause, %d in all", early, all)
}

func TestFleetProcess(t *testing.T) {
	env := os.Getenv("SASH_FLEET")
	if env == "" {
		return // only as a part of TestPauseOfAFleet
	}
	var addr, url, name string
	if _, err := fmt.Sscan(env, &addr, &url, &name); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	l, err := core.New(
		core.PerSecond(10_000),
		core.Global(),
		core.WithStore(redisstore.New(rdb)),
		core.WithName("fleet"),
		core.WithOverrides(),
		core.WithTimeout(time.Second),
	)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &nethttp.Transport{Limiter: l}}
	for n := 0; ; n++ {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Process", name)
		r.Header.Set("Began", time.Now().Format(time.RFC3339Nano))
		if response, err := client.Do(r); err == nil {
			response.Body.Close()
		}
		cancel()
		if n == 0 {
			fmt.Println("ready")
		}
		<-time.After(fleetInterval)
	}
}
