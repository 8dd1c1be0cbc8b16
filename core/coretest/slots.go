package coretest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
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

// slotTrace compares random calls about slots, alone and together with a window, with the oracle.
type slotTrace struct {
	t       *testing.T
	r       *rand.Rand
	store   core.Store
	settler store.Settler
	renewer store.Renewer
	joint   store.Joint // or nil
	advance func(time.Duration)
	logs    [2]*jointLog // the first is of slots
	lease   time.Duration
	keep    time.Duration
	desc    string
	repeats bool
	modes   []store.Mode
	id      uint64
	done    int
}

func slotsAgainstOracle(t *testing.T, c StoreConfig) {
	s, advance := c.New(t)
	d := &direct{t: t, store: s}
	settler, renewer := d.settler(), d.renewer()
	joint, _ := s.(store.Joint)
	modes := []store.Mode{store.ModeCharge, store.ModePeek, store.ModeRecord, store.ModeChargeDenied}
	if _, ok := s.(store.Granter); ok {
		modes = append(modes, store.ModeUpTo)
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 2))
	for n, done := 0, 0; done < c.Checks/4; n++ {
		tr := &slotTrace{
			t: t, r: r, store: s, settler: settler, renewer: renewer, joint: joint, advance: advance,
			lease: time.Second, keep: time.Second, repeats: c.Repeats, modes: modes,
			desc: fmt.Sprintf("seed %#x, trace %d", seed, n),
		}
		limits := []store.Limit{{Quota: 1 + r.IntN(5), Window: tr.lease}}
		if n%3 == 0 {
			limits = append(limits, store.Limit{Quota: 1 + r.IntN(4), Window: 2 * tr.lease})
			tr.keep = 2 * tr.lease
		}
		slots := store.Plan{Limits: limits, Slots: true}
		switch {
		case n%5 == 0:
			slots.Shadow = 1
		case n%4 == 0:
			slots.Keep, tr.keep = 5*time.Second, 5*time.Second
		}
		window := store.Plan{
			Limits: []store.Limit{{Quota: 20, Window: 3 * time.Second}, {Quota: 15, Window: 2 * time.Second}},
			Shadow: n % 2,
		}
		for i, p := range []store.Plan{slots, window} {
			tr.logs[i] = &jointLog{
				key:   store.NewKey(fmt.Sprintf("slots-%x-%d", seed, n), fmt.Sprint("k", i)),
				plans: []*store.Plan{store.NewPlan(p)},
			}
		}
		for range testlen.Of(60, 300) {
			tr.step()
		}
		done += tr.done
	}
}

func (tr *slotTrace) step() {
	slots := tr.logs[0]
	var by time.Duration
	switch tr.r.IntN(8) {
	case 0:
		by = time.Duration(tr.r.Int64N(int64(tr.lease))).Truncate(time.Microsecond)
	case 1: // until an entry is as old as the lease, give or take one microsecond
		if entries := slots.oracle.entries; len(entries) > 0 {
			e := entries[tr.r.IntN(len(entries))]
			by = max(0, e.at+tr.lease-slots.oracle.now+time.Duration(tr.r.IntN(3)-1)*time.Microsecond)
		}
	}
	if by > 0 {
		tr.advance(by)
	}
	for i, l := range tr.logs {
		l.oracle.now += by
		l.oracle.forget([]time.Duration{tr.keep, 3 * time.Second}[i])
	}
	switch k := tr.r.IntN(10); {
	case k < 2:
		tr.settle()
	case k < 4:
		tr.renew()
	case k < 7 && tr.joint != nil:
		tr.takeBoth()
	default:
		take := tr.next(slots, 1+tr.r.IntN(9), tr.mode())
		got, err := tr.store.Take(tr.t.Context(), take)
		if err != nil {
			tr.t.Fatal(err)
		}
		tr.compare(take, got, slots.oracle.take(take))
	}
}

func (tr *slotTrace) mode() store.Mode {
	if tr.r.IntN(3) == 0 {
		return tr.modes[tr.r.IntN(len(tr.modes))]
	}
	return store.ModeCharge
}

func (tr *slotTrace) next(l *jointLog, cost int, mode store.Mode) store.Take {
	tr.id++
	return store.Take{Key: l.key, Plan: l.plans[0], Cost: cost, ID: tr.id, Mode: mode}
}

// settle gives a slot back, which may be lost or given back already.
func (tr *slotTrace) settle() {
	l, id := tr.logs[0], tr.id-min(tr.id, tr.r.Uint64N(12))
	if err := tr.settler.Settle(tr.t.Context(), store.Settlement{Key: l.key, ID: id}); err != nil {
		tr.t.Fatal(err)
	}
	l.oracle.settle(id, 0)
}

// renew renews some of the latest takes, whether they have a slot or not.
func (tr *slotTrace) renew() {
	l := tr.logs[0]
	var ids []uint64
	for id := tr.id; id > 0 && tr.id-id < 15; id-- {
		if tr.r.IntN(3) > 0 {
			ids = append(ids, id)
		}
	}
	tr.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	r := store.Renewal{Key: l.key, IDs: ids, Keep: tr.keep}
	if err := tr.renewer.Renew(tr.t.Context(), r); err != nil {
		tr.t.Fatal(err)
	}
	l.oracle.renew(ids)
}

// takeBoth takes a slot and units of a window in one decision.
func (tr *slotTrace) takeBoth() {
	mode := tr.mode()
	slots := tr.next(tr.logs[0], 1+tr.r.IntN(9), mode)
	window := slots
	window.Key, window.Plan = tr.logs[1].key, tr.logs[1].plans[0]
	takes, answers := []store.Take{slots, window}, make([]store.Answer, 2)
	logs := slices.Clone(tr.logs[:])
	if tr.r.IntN(2) == 0 {
		slices.Reverse(takes)
		slices.Reverse(logs)
	}
	if err := tr.joint.TakeAll(tr.t.Context(), takes, answers); err != nil {
		tr.t.Fatalf("%s, step %d: %v", tr.desc, tr.done, err)
	}
	want := takeAll(takes, []*oracle{&logs[0].oracle, &logs[1].oracle})
	for i := range takes {
		tr.compare(takes[i], answers[i], want[i])
	}
}

func (tr *slotTrace) compare(take store.Take, got, want store.Answer) {
	tr.t.Helper()
	if tr.repeats && take.Mode == store.ModeChargeDenied && !want.Allowed && !take.Plan.Slots {
		// The second time, older units were trimmed.
		want.State, want.Denied, want.Shadow = got.State, got.Denied, got.Shadow
	}
	if got != want {
		tr.t.Fatalf("%s, step %d, limits %v, slots %v, cost %d, mode %v:\ngot  %+v\nwant %+v",
			tr.desc, tr.done, take.Plan.Limits, take.Plan.Slots, take.Cost, take.Mode, got, want)
	}
	tr.done++
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
				a, err := s.Take(t.Context(), take)
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
	a, err := s.Take(t.Context(), store.Take{Key: key, Plan: p, Cost: 1, ID: 1 << 40, Mode: store.ModePeek})
	if err != nil || a.State[0].Used != 0 || taken.Load() < slots {
		t.Errorf("%+v, %v: slots were left behind; %d were taken", a, err, taken.Load())
	}
}
