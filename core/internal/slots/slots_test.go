package slots_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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
	takes    time.Duration // a renewal
}

func newLogs() *logs { return &logs{start: time.Now()} }

func (l *logs) Renew(r *store.Renewal) {
	ids := slices.Sorted(slices.Values(r.IDs))
	l.mu.Lock()
	l.renewals = append(l.renewals, fmt.Sprint(time.Since(l.start), " ", r.Key.Text, ids, r.Lease, r.Keep))
	l.mu.Unlock()
	time.Sleep(l.takes)
}

func (l *logs) Release(_ context.Context, s *slots.Slot, _ bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.released = append(l.released, s.ID)
	return l.err
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
		hold := func(held ...slots.Slot) *slots.Held { return s.Hold(held, false) }
		a := hold(slot("a", 1, 30*time.Second), slot("b", 1, 30*time.Second))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want(t, l.renewed(), []string{"10s a[1] 30s 30s", "10s b[1] 30s 30s"})
		b := hold(slot("a", 2, 3*time.Second)) // a shorter lease
		time.Sleep(time.Second)
		synctest.Wait()
		want(t, l.renewed(), []string{"11s a[1 2] 3s 30s", "11s b[1] 30s 30s"})
		for range 2 {
			if err := b.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		want(t, l.renewed(), []string{"12s a[1] 3s 30s", "12s b[1] 30s 30s"})
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
		want(t, l.renewed(), []string{"1h0m13s a[3] 3s 3s"})
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
		s.Hold([]slots.Slot{slot("a", 1, 3*time.Second)}, false)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		want(t, l.renewed(), []string{"1s a[1] 3s 3s", "4s a[1] 3s 3s"})
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
		h := s.Hold([]slots.Slot{slot("a", 1, time.Second), slot("b", 1, time.Second)}, false)
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
	hold := func(id uint64) *slots.Held { return s.Hold([]slots.Slot{slot("a", id, time.Hour)}, false) }
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
				h := s.Hold([]slots.Slot{slot(fmt.Sprint(n%4), uint64(n)<<32+i, time.Second)}, false)
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
