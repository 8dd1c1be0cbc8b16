package coretest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// slotsAreHeld follows the slots of a few takes: each is one whatever its cost, and ends when it is settled to 0 or was
// not renewed for a lease. A renewal takes a slot back that was lost, whether there is room or not.
func slotsAreHeld(t *testing.T, c StoreConfig) {
	s, advance := c.New(t)
	const lease = 10 * time.Second
	d := newDirect(t, s)
	settler, renewer := d.settler(), d.renewer()
	p := planOfOne(2, lease, store.Plan{Slots: true, Keep: time.Minute})
	renew := func(ids ...uint64) {
		t.Helper()
		d.noError(renewer.Renew(t.Context(), store.Renewal{Key: d.key, IDs: ids, Keep: time.Minute}))
	}
	take := func(mode store.Mode, cost, used int, allowed bool) uint64 {
		t.Helper()
		if a := d.take(p, mode, cost); a.Allowed != allowed || a.State[0].Used != used {
			t.Errorf("mode %v, cost %d: %+v, want allowed %v and %d used", mode, cost, a, allowed, used)
		}
		return d.id
	}
	first := take(store.ModeCharge, 7, 0, true)
	take(store.ModeRecord, 5, 1, true) // records nothing
	take(store.ModePeek, 3, 1, true)
	second := take(store.ModeChargeDenied, 3, 1, true)
	take(store.ModeChargeDenied, 1, 2, false) // records nothing
	take(store.ModeRecord, 1, 2, false)
	d.used(p, 2)

	advance(lease - time.Microsecond)
	renew(second, second)
	d.used(p, 2)
	advance(time.Microsecond)
	d.used(p, 1) // the first one has lost its slot
	third := take(store.ModeCharge, 1, 1, true)
	renew(first)
	d.used(p, 3)
	take(store.ModeCharge, 1, 3, false)
	d.noError(settler.Settle(t.Context(), store.Settlement{Key: d.key, ID: first}))
	d.used(p, 2)
	for range 2 { // the second time it does nothing
		d.noError(settler.Settle(t.Context(), store.Settlement{Key: d.key, ID: second}))
		d.used(p, 1)
	}
	d.noError(s.Reset(t.Context(), d.key))
	d.used(p, 0)
	renew(third) // of a key without a log
	d.used(p, 1)
	for range 30 { // longer than the log keeps entries
		advance(lease / 3)
		renew(third)
	}
	d.used(p, 1)
	advance(lease)
	d.used(p, 0)
}

// Many callers take, renew and give back slots at once: no more have one than there are, and none is left at the end.
func slotsConcurrently(t *testing.T, c StoreConfig) {
	if c.Repeats {
		t.Skip("a slot may be given back before the second execution of a take that was denied")
	}
	s, _ := c.New(t)
	d := &direct{t: t, store: s}
	settler, renewer := d.settler(), d.renewer()
	const callers, slots = 32, 5
	p := planOfOne(slots, time.Hour, store.Plan{Slots: true})
	key := store.NewKey("slots", "k")
	var id, held, taken atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range testlen.Of(10, 40) {
				take := store.Take{Key: key, Plan: p, Cost: 3, ID: uint64(id.Add(1))}
				a, err := Take(t.Context(), s, take)
				if err != nil {
					t.Error(err)
				}
				if !a.Allowed {
					continue
				}
				taken.Add(1)
				if n := held.Add(1); n > slots {
					t.Errorf("%d of %d slots are taken", n, slots)
				}
				r := store.Renewal{Key: key, IDs: []uint64{take.ID}, Keep: time.Hour}
				err = renewer.Renew(t.Context(), r)
				held.Add(-1)
				back := settler.Settle(t.Context(), store.Settlement{Key: key, ID: take.ID})
				if err != nil || back != nil {
					t.Error(err, back)
				}
			}
		})
	}
	wg.Wait()
	a, err := Take(t.Context(), s, store.Take{Key: key, Plan: p, Cost: 1, ID: 1 << 40, Mode: store.ModePeek})
	if err != nil || a.State[0].Used != 0 || taken.Load() < slots {
		t.Errorf("%+v, %v: slots were left behind; %d were taken", a, err, taken.Load())
	}
}
