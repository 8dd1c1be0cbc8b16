package permits_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/permits"
	"github.com/sashlimit/sash/core/store"
)

// logs notes what is asked of it.
type logs struct {
	start time.Time

	mu       sync.Mutex
	renewals []string
	released []uint64
	err      error         // of releases
	fails    error         // of renewals
	takes    time.Duration // a renewal
	during   func()        // a renewal

	failsOnce bool   // the next renewal succeeds
	hangs     string // what keys begin with whose renewals fail after a second
}

func newLogs() *logs { return &logs{start: time.Now()} }

func (l *logs) Renew(_ context.Context, r *store.Renewal) error {
	l.mu.Lock()
	slices.Sort(r.IDs)
	l.renewals = append(l.renewals, fmt.Sprint(time.Since(l.start), " ", r.Key.Text, r.IDs, " ", r.Limit.Window))
	fails, during := l.fails, l.during
	if l.failsOnce {
		l.fails = nil
	}
	l.mu.Unlock()
	if during != nil {
		during()
	}
	time.Sleep(l.takes)
	if l.hangs != "" && strings.HasPrefix(r.Key.Text, l.hangs) {
		time.Sleep(time.Second)
		return errors.New("no answer")
	}
	return fails
}

func (l *logs) Release(_ context.Context, p *permits.Permit) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.released = append(l.released, p.ID)
	return l.err
}

func (l *logs) set(f func(*logs)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l)
}

// renewed returns the renewals since the last call, in order.
func (l *logs) renewed() (all []string) {
	synctest.Wait()
	l.set(func(l *logs) { all, l.renewals = l.renewals, nil })
	slices.Sort(all)
	return all
}

func newSet(l *logs) *permits.Set { return permits.New(l, func(*store.Key) {}) }

var namespace = store.NewNamespace("p", "own", nil)

func permit(key string, id uint64, lease time.Duration) permits.Permit {
	k := store.Key{Namespace: namespace, Identity: store.Identity{Kind: "by", Text: key}}
	return permits.Permit{
		Key: k, ID: id, Limit: &store.Limit{Log: "inflight", Quota: 9, Window: lease, Permits: true},
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("renewed %q, want %q", got, want)
	}
}

// Permits are renewed a little less than a third of their lease apart, while any is held.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogs()
		s := newSet(l)
		hold := func(all ...permits.Permit) *permits.Held { return s.Hold(t.Context(), all) }
		a := hold(permit("a", 1, 30*time.Second), permit("b", 1, 30*time.Second))
		time.Sleep(10 * time.Second)
		want(t, l.renewed(), "9s a[1] 30s", "9s b[1] 30s")
		b := hold(permit("c", 2, 3*time.Second)) // a shorter lease
		time.Sleep(time.Second)
		want(t, l.renewed(), "10.75s c[2] 3s")
		for range 2 {
			noError(t, b.Release(t.Context()))
		}
		time.Sleep(9 * time.Second)
		want(t, l.renewed(), "18s a[1] 30s", "18s b[1] 30s")
		if err := a.Release(t.Context()); err != nil || s.Len() != 0 {
			t.Errorf("%v, %d permits are held", err, s.Len())
		}
		time.Sleep(time.Hour)
		want(t, l.renewed())
		if !slices.Equal(l.released, []uint64{2, 1, 1}) {
			t.Errorf("released %v", l.released)
		}
		hold(permit("a", 3, 3*time.Second))
		time.Sleep(time.Second)
		want(t, l.renewed(), "1h0m20.75s a[3] 3s")
		s.Close()
		hold(permit("a", 4, 3*time.Second))
		time.Sleep(time.Minute)
		want(t, l.renewed())
		s.Close()
	})
}

// A permit that was taken without the store is renewed soon, which adds it to the store.
func TestDegraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogs()
		s := newSet(l)
		defer s.Close()
		p := permit("a", 1, 30*time.Second)
		p.Degraded = true
		s.Hold(t.Context(), []permits.Permit{p})
		time.Sleep(time.Second)
		want(t, l.renewed(), "1s a[1] 30s")
		time.Sleep(8 * time.Second)
		want(t, l.renewed())
	})
}

// A renewal that takes longer than a third of a lease is not begun again before it has ended. Close waits for it.
func TestSlowRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogs()
		l.takes = 2500 * time.Millisecond
		s := newSet(l)
		s.Hold(t.Context(), []permits.Permit{permit("a", 1, 3*time.Second)})
		time.Sleep(5 * time.Second)
		want(t, l.renewed(), "4s a[1] 3s", "750ms a[1] 3s")
		begun := time.Now()
		s.Close()
		if took := time.Since(begun); took != 1500*time.Millisecond {
			t.Errorf("Close took %v", took)
		}
	})
}

// A release that fails may be repeated, and the permit is not renewed meanwhile.
func TestReleaseThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogs()
		s := newSet(l)
		l.err = errors.New("down")
		h := s.Hold(t.Context(), []permits.Permit{permit("a", 1, time.Second), permit("b", 1, time.Second)})
		for range 2 {
			if err := h.Release(t.Context()); !errors.Is(err, l.err) {
				t.Error(err)
			}
		}
		time.Sleep(time.Minute)
		want(t, l.renewed())
		l.err = nil
		for range 3 {
			noError(t, h.Release(t.Context()))
		}
		if len(l.released) != 6 {
			t.Errorf("released %v", l.released)
		}
	})
}

// Permits that are held and released at once, by many.
func TestConcurrently(t *testing.T) {
	s := newSet(newLogs())
	defer s.Close()
	var all sync.WaitGroup
	for n := range 16 {
		all.Go(func() {
			for i := range uint64(500) {
				h := s.Hold(t.Context(), []permits.Permit{permit(fmt.Sprint(n%4), uint64(n)<<32+i, time.Second)})
				noError(t, h.Release(context.Background()))
			}
		})
	}
	all.Wait()
	if n := s.Len(); n != 0 {
		t.Errorf("%d permits are left", n)
	}
}

// A renewal that fails is repeated each second until it succeeds, and those of other logs are not. Hasten renews all at
// once. An error about one key is no reason to try again.
func TestRenewalThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogs()
		s := newSet(l)
		defer s.Close()
		l.fails = errors.New("down")
		l.failsOnce = true // of two renewals one succeeds
		for _, key := range []string{"a", "b"} {
			s.Hold(t.Context(), []permits.Permit{permit(key, 1, 12*time.Second)})
		}
		time.Sleep(3 * time.Second)
		if n := len(l.renewed()); n != 2 {
			t.Fatalf("%d renewals, want 2", n)
		}
		l.set(func(l *logs) { l.fails, l.failsOnce = errors.New("down"), false })
		time.Sleep(2500 * time.Millisecond)
		again := l.renewed()
		if len(again) != 2 || again[0][:2] != "4s" || again[1][:2] != "5s" {
			t.Fatalf("renewed %q, want the one that has failed, after 1 s and after 2 s", again)
		}
		l.set(func(l *logs) { l.fails = nil })
		time.Sleep(500 * time.Millisecond)
		got := l.renewed() // the other one is due as well
		if len(got) != 2 || !slices.Contains(got, strings.Replace(again[0], "4s", "6s", 1)) {
			t.Fatalf("renewed %q", got)
		}
		s.Hasten()
		want(t, l.renewed(), "6s a[1] 12s", "6s b[1] 12s")
		l.set(func(l *logs) { l.fails = &store.StoreError{OneKey: true} })
		time.Sleep(4 * time.Second)
		want(t, l.renewed(), "9s a[1] 12s", "9s b[1] 12s")
		time.Sleep(1900 * time.Millisecond)
		want(t, l.renewed())
	})
}

// Logs that do not answer, as those of a node of a cluster, keep no others from being renewed within their lease.
func TestHangingLogs(t *testing.T) {
	const lease, length = 12 * time.Second, 3 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		l := newLogs()
		l.hangs = "hangs"
		s := newSet(l)
		defer s.Close()
		var all []permits.Permit
		latest := make(map[string]time.Duration)
		for i := range 100 {
			all = append(all, permit(fmt.Sprint("hangs", i), 1, lease), permit(fmt.Sprint("k", i), 1, lease))
			latest[fmt.Sprintf("k%d[1]", i)] = 0
		}
		held := s.Hold(t.Context(), all)
		renewed := func(key string, at time.Duration) {
			if since := at - latest[key]; since >= lease {
				t.Errorf("%s was not renewed for %v, until %v", key, since, at)
			}
			latest[key] = at
		}
		time.Sleep(length)
		synctest.Wait()
		for _, text := range l.renewals {
			fields := strings.Fields(text)
			if at, err := time.ParseDuration(fields[0]); err == nil && fields[1][0] == 'k' {
				renewed(fields[1], at)
			}
		}
		for key := range latest {
			renewed(key, length)
		}
		noError(t, held.Release(t.Context()))
	})
}

// A permit that is released while it is renewed is released again after that, since the renewal may have come last.
func TestReleaseDuringRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogs()
		var freed atomic.Int32
		s := permits.New(l, func(*store.Key) { freed.Add(1) })
		h := s.Hold(t.Context(), []permits.Permit{permit("a", 1, 3*time.Second)})
		other := s.Hold(t.Context(), []permits.Permit{permit("a", 2, 3*time.Second)})
		l.set(func(l *logs) {
			l.during = sync.OnceFunc(func() {
				noError(t, h.Release(t.Context()))
			})
		})
		time.Sleep(time.Second)
		want(t, l.renewed(), "750ms a[1 2] 3s")
		if want := []uint64{1, 1}; !slices.Equal(l.released, want) || freed.Load() != 1 {
			t.Errorf("released %v, want %v; told %d times", l.released, want, freed.Load())
		}
		noError(t, other.Release(t.Context()))
	})
}

// No more permits are held than a limit allows. Those of the decision that is one too many are given back, and the log,
// which has lost some, is renewed soon.
func TestTooManyPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogs()
		s := newSet(l)
		for id := range uint64(9) { // the quota
			defer s.Hold(t.Context(), []permits.Permit{permit("a", id+1, 12*time.Second)}).Release(t.Context())
		}
		for range 8 { // which do not put the renewal off
			more := []permits.Permit{permit("b", 10, 12*time.Second), permit("a", 10, 12*time.Second)}
			if h := s.Hold(t.Context(), more); h != nil || more[0].Taken != 0 || more[1].Taken != 9 || s.Len() != 9 {
				t.Errorf("%v, %+v; %d are held", h, more, s.Len())
			}
			time.Sleep(125 * time.Millisecond)
		}
		if len(l.released) != 16 {
			t.Errorf("released %v", l.released)
		}
		want(t, l.renewed(), "1s a[1 2 3 4 5 6 7 8 9] 12s")
		time.Sleep(3 * time.Second)
		want(t, l.renewed(), "4s a[1 2 3 4 5 6 7 8 9] 12s")
	})
}

// Permits that nobody can release any more are dropped after ten leases, and those that somebody can are not.
func TestForgottenPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogs()
		s := newSet(l)
		defer s.Close()
		var log bytes.Buffer
		defer slog.SetDefault(slog.Default())
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		kept := s.Hold(t.Context(), []permits.Permit{permit("a", 1, time.Minute)})
		s.Hold(t.Context(), []permits.Permit{permit("a", 2, time.Minute), permit("b", 2, time.Minute)})
		time.Sleep(10*time.Minute - time.Second)
		collect()
		time.Sleep(500 * time.Millisecond)
		if n := s.Len(); n != 3 {
			t.Errorf("%d permits are held before the time, want 3", n)
		}
		for s.Len() != 1 {
			time.Sleep(time.Second)
			collect()
		}
		if err := kept.Release(t.Context()); err != nil || !slices.Equal(l.released, []uint64{1}) {
			t.Errorf("%v; released %v", err, l.released)
		}
		if !strings.Contains(log.String(), " policy=p ") {
			t.Errorf("the line does not name the policy:\n%s", &log)
		}
	})
}

// collect collects garbage and lets its cleanups run.
func collect() {
	runtime.GC()
	runtime.GC()
	runtime.Gosched()
}
