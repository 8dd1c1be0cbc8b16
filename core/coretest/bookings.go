package coretest

import (
	"fmt"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// bookingsCount follows bookings in one log: they count while they are stamped after now and until they have left the
// window, settling moves them to now, and a reset keeps them.
func bookingsCount(t *testing.T, c StoreConfig) {
	s, advance := c.New(t)
	leaser, ok := s.(store.Leaser)
	if !ok {
		t.Skip("the store cannot book units")
	}
	d := newDirect(t, s)
	const lease = 100 * time.Millisecond
	plan := planOfOne(20, time.Second, store.Plan{})
	const want = 4 // units, a quarter of what is left
	book := func(key store.Key, settled uint64, used int) (id uint64) {
		t.Helper()
		d.id += 2
		b := store.Booking{
			Take: store.Take{Key: key, Plan: plan, Cost: 1, ID: d.id - 1}, ID: d.id, Most: 100, Share: 1, Lease: lease,
			Settled: settled, Used: used,
		}
		for range 2 { // a command that was sent again books the same units
			booked, err := leaser.Book(t.Context(), b)
			if err != nil || !booked.Answer.Allowed || booked.Units != want {
				t.Fatalf("%+v, %v; want %d booked", booked, err, want)
			}
		}
		return b.ID
	}
	ask := func(key store.Key, mode store.Mode, cost int) store.Answer {
		t.Helper()
		d.id++
		a, err := Take(t.Context(), s, store.Take{Key: key, Plan: plan, Cost: cost, ID: d.id, Mode: mode})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	used := func(key store.Key, want int) {
		t.Helper()
		if n := ask(key, store.ModePeek, 1).State[0].Used; n != want {
			t.Errorf("%d used, want %d", n, want)
		}
	}

	wrong := store.Booking{Take: store.Take{Key: d.key, Plan: plan, Cost: 1, ID: 1}, ID: 2, Lease: time.Minute}
	if _, err := leaser.Book(t.Context(), wrong); err == nil {
		t.Error("a lease of a minute was accepted")
	}
	full := store.NewKey("bookings", "full")
	first := book(full, 0, 0) // of the 19 that are left
	book(full, first, 1)      // of the 17
	if a := ask(full, store.ModeCharge, 13); !a.Allowed {
		t.Errorf("the rest of the quota: %+v", a)
	}
	a := ask(full, store.ModeCharge, 1)
	if a.Allowed || a.State[0].Used != 20 || a.Retry != time.Second {
		t.Errorf("a unit more: %+v", a)
	}
	if a = ask(full, store.ModeCharge, 17); a.Allowed || a.Retry != time.Second+lease { // until a booking has left
		t.Errorf("17 units more: %+v", a)
	}
	advance(time.Second + lease - time.Microsecond)
	used(full, 4)
	advance(time.Microsecond)
	used(full, 0)

	settled := store.NewKey("bookings", "settled")
	id := book(settled, 0, 0)
	advance(lease / 2)
	if err := leaser.Settle(t.Context(), store.Settlement{Key: settled, ID: id, Cost: 3}); err != nil {
		t.Error(err)
	}
	used(settled, 4)
	advance(time.Second - time.Microsecond)
	used(settled, 3)
	advance(time.Microsecond)
	used(settled, 0)

	kept := store.NewKey("bookings", "kept")
	book(kept, 0, 0)
	if err := s.Reset(t.Context(), kept); err != nil {
		t.Error(err)
	}
	used(kept, 4)
	if lister, ok := s.(store.Lister); ok {
		entries, err := lister.Log(t.Context(), kept, time.Second)
		if err != nil || len(entries) != 1 || !entries[0].Booked || entries[0].Cost != 4 {
			t.Errorf("the log of a booking: %+v, %v", entries, err)
		}
	}
	advance(lease)
	if err := s.Reset(t.Context(), kept); err != nil {
		t.Error(err)
	}
	used(kept, 0)
}

// bookingsAgain executes bookings once more after their leases have ended, and after a reset that has kept the booking
// but not the take. The same units are booked.
func bookingsAgain(t *testing.T, c StoreConfig) {
	s, advance := c.New(t)
	leaser, ok := s.(store.Leaser)
	if !ok {
		t.Skip("the store cannot book units")
	}
	const lease = 100 * time.Millisecond
	for i, reset := range []bool{false, true} {
		b := store.Booking{
			Take: store.Take{
				Key: store.NewKey(
					"again",
					fmt.Sprint(i),
				), Plan: planOfOne(20, time.Second, store.Plan{}), Cost: 1, ID: 1,
			}, ID: 2, Most: 4, Share: 1, Lease: lease,
		}
		for _, passed := range []time.Duration{0, lease / 2, lease} {
			if reset && passed > 0 {
				if err := s.Reset(t.Context(), b.Take.Key); err != nil {
					t.Error(err)
				}
			}
			advance(passed)
			got, err := leaser.Book(t.Context(), b)
			if err != nil || !got.Answer.Allowed || got.Units != 4 || got.Others != 0 {
				t.Errorf("reset %v, after %v: %+v, %v; want 4 units", reset, passed, got, err)
			}
		}
		peek := store.Take{Key: b.Take.Key, Plan: b.Take.Plan, Cost: 1, ID: 3, Mode: store.ModePeek}
		if a, err := Take(t.Context(), s, peek); err != nil || a.State[0].Used != 5 {
			t.Errorf("reset %v: %+v, %v; want 5 used", reset, a, err)
		}
	}
}

// jointBookings denies requests over a log that has only a booking, which leaves the window later than a unit of the
// request would.
func jointBookings(t *testing.T, c StoreConfig) {
	s, _ := c.New(t)
	d := newDirect(t, s)
	needSeveral(d)
	leaser, ok := s.(store.Leaser)
	if !ok {
		t.Skip("the store cannot book units")
	}
	const lease = 100 * time.Millisecond
	plan, small := planOfOne(20, time.Second, store.Plan{}), planOfOne(1, time.Second, store.Plan{})
	booked, full := store.NewKey("booked", "k"), store.NewKey("full", "k")
	b, err := leaser.Book(t.Context(), store.Booking{
		Take: store.Take{
			Key:  booked,
			Plan: plan,
			Cost: 1,
			ID:   1,
			Mode: store.ModePeek,
		}, ID: 2, Most: 4, Share: 1, Lease: lease,
	})
	if err != nil || b.Units != 4 {
		t.Fatalf("%+v, %v", b, err)
	}
	if a, err := Take(t.Context(), s, store.Take{Key: full, Plan: small, Cost: 1, ID: 3}); err != nil || !a.Allowed {
		t.Fatalf("%+v, %v", a, err)
	}
	for id := uint64(4); id < 6; id++ {
		answers := make([]store.Answer, 2)
		err := TakeAll(t.Context(), s, []store.Take{
			{Key: booked, Plan: plan, Cost: 1, ID: id}, {Key: full, Plan: small, Cost: 1, ID: id},
		}, answers)
		want := store.Answer{Allowed: true}
		want.State[0] = store.State{Used: 4, Reset: time.Second + lease}
		if err != nil || answers[1].Allowed || answers[0] != want {
			t.Errorf("%+v, %v; want %+v of the booked log", answers, err, want)
		}
	}
}
