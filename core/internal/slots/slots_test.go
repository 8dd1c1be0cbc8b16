package slots_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/internal/slots"
	"github.com/sashlimit/sash/core/store"
)

// logs notes what is asked of it.
type logs struct {
	mu       sync.Mutex
	start    time.Time
	renewals []string
	released []uint64
	err      error
	fails    error         // of renewals
	takes    time.Duration // a renewal
	during   func()        // a renewal
	hangs    string        // what keys begin with whose renewals fail after a second
}

func newLogs() *logs { return &logs{start: time.Now()} }

func (l *logs) Renew(_ context.Context, r *store.Renewal, told []uint64) error {
	text := fmt.Sprint(time.Since(l.start), " ", r.Key.Text, slices.Sorted(slices.Values(r.IDs)), " ", r.Keep)
	if len(told) > 0 {
		text += fmt.Sprint(" told ", slices.Sorted(slices.Values(told)))
	}
	l.mu.Lock()
	l.renewals = append(l.renewals, text)
	fails, during := l.fails, l.during
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

func (l *logs) Release(_ context.Context, s *slots.Slot) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.released = append(l.released, s.ID)
	return l.err
}

// fail makes renewals fail.
func (l *logs) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails = err
}

// renewed returns the renewals since the last call, in order.
func (l *logs) renewed() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.renewals
	l.renewals = nil
	slices.Sort(all)
	return all
}

var namespace = store.NewNamespace("p:f", nil)

func slot(key string, id uint64, lease time.Duration) slots.Slot {
	k := store.Key{Namespace: namespace, Identity: store.Identity{Kind: "by", Text: key}}
	return slots.Slot{Key: k, ID: id, Plan: store.NewPlan(store.Plan{
		Limits: []store.Limit{{Quota: 9, Window: lease}}, Slots: true,
	})}
}

func want(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("renewed %q, want %q", got, want)
	}
}

// One timer renews all slots a third of their shortest lease apart, while any is held.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogs()
		s := slots.New(l)
		hold := func(held ...slots.Slot) *slots.Held { return s.Hold(t.Context(), held) }
		a := hold(slot("a", 1, 30*time.Second), slot("b", 1, 30*time.Second))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want(t, l.renewed(), []string{"10s a[1] 30s", "10s b[1] 30s"})
		b := hold(slot("a", 2, 3*time.Second)) // a shorter lease
		time.Sleep(time.Second)
		synctest.Wait()
		want(t, l.renewed(), []string{"11s a[1 2] 30s", "11s b[1] 30s"})
		for range 2 {
			if err := b.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		want(t, l.renewed(), []string{"12s a[1] 30s", "12s b[1] 30s"})
		if err := a.Release(t.Context()); err != nil || s.Len() != 0 {
			t.Errorf("%v, %d slots are held", err, s.Len())
		}
		time.Sleep(time.Hour)
		want(t, l.renewed(), nil)
		if !slices.Equal(l.released, []uint64{2, 1, 1}) {
			t.Errorf("released %v", l.released)
		}
		hold(slot("a", 3, 3*time.Second))
		time.Sleep(time.Second)
		synctest.Wait()
		want(t, l.renewed(), []string{"1h0m13s a[3] 3s"})
		s.Close()
		hold(slot("a", 4, 3*time.Second))
		time.Sleep(time.Minute)
		want(t, l.renewed(), nil)
		s.Close()
	})
}

// A renewal that takes longer than a third of a lease is not begun again before it has ended. Close waits for it.
func TestSlowRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogs()
		l.takes = 2500 * time.Millisecond
		s := slots.New(l)
		s.Hold(t.Context(), []slots.Slot{slot("a", 1, 3*time.Second)})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		want(t, l.renewed(), []string{"1s a[1] 3s", "4s a[1] 3s"})
		begun := time.Now()
		s.Close()
		if took := time.Since(begun); took != 1500*time.Millisecond {
			t.Errorf("Close took %v", took)
		}
	})
}

// A release that fails may be repeated, and the slot is not renewed meanwhile.
func TestReleaseThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogs()
		s := slots.New(l)
		l.err = errors.New("down")
		h := s.Hold(t.Context(), []slots.Slot{slot("a", 1, time.Second), slot("b", 1, time.Second)})
		for range 2 {
			if err := h.Release(t.Context()); !errors.Is(err, l.err) {
				t.Error(err)
			}
		}
		time.Sleep(time.Minute)
		want(t, l.renewed(), nil)
		l.err = nil
		for range 3 {
			if err := h.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if len(l.released) != 6 {
			t.Errorf("released %v", l.released)
		}
	})
}

// Merge tells of each slot once, and of none that is released.
func TestMerge(t *testing.T) {
	s := slots.New(newLogs())
	defer s.Close()
	hold := func(id uint64) *slots.Held { return s.Hold(t.Context(), []slots.Slot{slot("a", id, time.Hour)}) }
	merge := func(key string, want ...uint64) {
		t.Helper()
		var got []uint64
		k := slot(key, 0, time.Hour).Key
		s.Merge(&k, func(ids []uint64) { got = append(got, ids...) })
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	first, second := hold(1), hold(2)
	merge("b")
	if err := first.Release(t.Context()); err != nil {
		t.Error(err)
	}
	merge("a", 2)
	merge("a")
	third := hold(3)
	merge("a", 3)
	if err := errors.Join(second.Release(t.Context()), third.Release(t.Context())); err != nil {
		t.Error(err)
	}
	merge("a")
}

// Slots that are held and released at once, by many.
func TestConcurrently(t *testing.T) {
	s := slots.New(newLogs())
	defer s.Close()
	var all sync.WaitGroup
	for n := range 16 {
		all.Go(func() {
			for i := range uint64(500) {
				h := s.Hold(t.Context(), []slots.Slot{slot(fmt.Sprint(n%4), uint64(n)<<32+i, time.Second)})
				if err := h.Release(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := s.Len(); n != 0 {
		t.Errorf("%d slots are left", n)
	}
}

// A renewal that fails is tried again until it succeeds, that of other logs is not, and all are renewed when the next
// renewal is due. Hasten does not wait for that. An error about one key is no reason to try again.
func TestRenewalThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogs()
		s := slots.New(l)
		l.fails = errors.New("down")
		l.during = sync.OnceFunc(func() { l.fail(nil) }) // of two renewals the second one succeeds
		for _, key := range []string{"a", "b"} {
			s.Hold(t.Context(), []slots.Slot{slot(key, 1, 12*time.Second)})
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if n := len(l.renewed()); n != 2 {
			t.Fatalf("%d renewals, want 2", n)
		}
		l.fail(errors.New("down"))
		time.Sleep(2500 * time.Millisecond)
		again := l.renewed()
		if len(again) != 2 || again[0][:2] != "5s" || again[1][:2] != "6s" {
			t.Fatalf("renewed %q, want the one that has failed, after 1 s and after 2 s", again)
		}
		l.fail(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		want(t, l.renewed(), []string{strings.Replace(again[0], "5s", "7s", 1)})
		time.Sleep(time.Second)
		synctest.Wait()
		want(t, l.renewed(), []string{"8s a[1] 12s", "8s b[1] 12s"})
		s.Hasten()
		synctest.Wait()
		l.fail(&store.StoreError{OneKey: true})
		want(t, l.renewed(), []string{"8.5s a[1] 12s", "8.5s b[1] 12s"})
		time.Sleep(7 * time.Second)
		want(t, l.renewed(), []string{"12.5s a[1] 12s", "12.5s b[1] 12s"})
		s.Close()
	})
}

// Logs that do not answer, as those of a node of a cluster, keep no others from being renewed within their lease.
func TestHangingLogs(t *testing.T) {
	const lease, length = 2 * time.Second, time.Minute
	synctest.Test(t, func(t *testing.T) {
		l := newLogs()
		l.hangs = "hangs"
		s := slots.New(l)
		defer s.Close()
		var all []slots.Slot
		latest := make(map[string]time.Duration)
		for i := range 100 {
			all = append(all, slot(fmt.Sprint("hangs", i), 1, lease), slot(fmt.Sprint("k", i), 1, lease))
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
		if err := held.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A slot that is released while it is renewed is released again after that, since the renewal may have come last.
func TestReleaseDuringRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogs()
		s := slots.New(l)
		var freed atomic.Int32
		s.Freed = func(*store.Key) { freed.Add(1) }
		h := s.Hold(t.Context(), []slots.Slot{slot("a", 1, 3*time.Second)})
		other := s.Hold(t.Context(), []slots.Slot{slot("a", 2, 3*time.Second)})
		release := sync.OnceFunc(func() {
			if err := h.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
		l.mu.Lock()
		l.during = release
		l.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		l.mu.Lock()
		released := slices.Clone(l.released)
		l.mu.Unlock()
		if want := []uint64{1, 1}; !slices.Equal(released, want) || freed.Load() != 1 {
			t.Errorf("released %v, want %v; %d calls of Freed", released, want, freed.Load())
		}
		if err := other.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// No more slots are held than a limit allows. Those of the decision that is one too many are given back, and the log,
// which has lost some, is renewed soon.
func TestTooManySlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogs()
		s := slots.New(l)
		for id := range uint64(9) { // the quota
			defer s.Hold(t.Context(), []slots.Slot{slot("a", id+1, 12*time.Second)}).Release(t.Context())
		}
		for range 3 {
			more := []slots.Slot{slot("b", 10, 12*time.Second), slot("a", 10, 12*time.Second)}
			if h := s.Hold(t.Context(), more); h != nil || more[0].Taken != 0 || more[1].Taken != 9 || s.Len() != 9 {
				t.Errorf("%v, %+v; %d are held", h, more, s.Len())
			}
		}
		if len(l.released) != 6 {
			t.Errorf("released %v", l.released)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		want(t, l.renewed(), []string{"1s a[1 2 3 4 5 6 7 8 9] 12s"})
		time.Sleep(4 * time.Second)
		synctest.Wait()
		want(t, l.renewed(), []string{"5s a[1 2 3 4 5 6 7 8 9] 12s"})
	})
}

// Slots that nobody can release any more are dropped after ten leases, and those that somebody can are not.
func TestForgottenSlots(t *testing.T) {
	l := newLogs()
	s := slots.New(l)
	defer s.Close()
	var log bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	kept := s.Hold(t.Context(), []slots.Slot{slot("a", 1, time.Minute)})
	s.Hold(t.Context(), []slots.Slot{slot("a", 2, time.Minute), slot("b", 2, time.Minute)})
	renew := func() {
		s.Hasten()
		for len(l.renewed()) == 0 {
			runtime.Gosched()
		}
	}
	for range 29 {
		renew()
	}
	runtime.GC()
	if n := s.Len(); n != 3 {
		t.Errorf("%d slots are held before the time, want 3", n)
	}
	for s.Len() != 1 {
		renew()
		runtime.GC()
	}
	if err := kept.Release(t.Context()); err != nil || !slices.Equal(l.released, []uint64{1}) {
		t.Errorf("%v; released %v", err, l.released)
	}
	if !strings.Contains(log.String(), " policy=p ") {
		t.Errorf("the line does not name the policy:\n%s", &log)
	}
}

// Slots that are held and released in any order, some of which Merge was told: it is told each once.
func TestOrderOfReleases(t *testing.T) {
	s := slots.New(newLogs())
	defer s.Close()
	r := rand.New(rand.NewPCG(1, 2))
	held, told := make(map[uint64]*slots.Held), make(map[uint64]bool)
	key := slot("a", 0, time.Hour).Key
	for id := range uint64(2000) {
		if one := slot("a", id, time.Hour); r.IntN(5) > 0 {
			one.Plan = store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: 5000, Window: time.Hour}}, Slots: true})
			held[id] = s.Hold(t.Context(), []slots.Slot{one})
		}
		if r.IntN(2) == 0 {
			for id, h := range held {
				if err := h.Release(t.Context()); err != nil {
					t.Error(err)
				}
				delete(held, id)
				break
			}
		}
		if r.IntN(9) == 0 {
			s.Merge(&key, func(ids []uint64) {
				for _, id := range ids {
					if told[id] || held[id] == nil {
						t.Errorf("%d: told twice, or not held", id)
					}
					told[id] = true
				}
			})
			for id := range held {
				if !told[id] {
					t.Errorf("%d: not told", id)
				}
			}
		}
		if s.Len() != len(held) {
			t.Fatalf("%d held, want %d", s.Len(), len(held))
		}
	}
}
