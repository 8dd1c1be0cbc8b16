package store_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/store"
)

func TestNewPlan(t *testing.T) {
	limits := []store.Limit{ // the last two are shadows
		{Quota: 5, Window: time.Minute},
		{Quota: 2, Window: time.Second},
		{Quota: 9, Window: time.Hour},
		{Quota: 1, Window: time.Second},
	}
	for _, test := range []struct {
		name        string
		given       store.Plan
		keep        time.Duration
		bound       int
		small, most int
	}{
		{"one limit", store.Plan{Limits: limits[:1]}, time.Minute, 5, 5, 5},
		{"several", store.Plan{Limits: limits[:3]}, time.Hour, 9, 2, 9},
		{"the smallest last", store.Plan{Limits: limits[:2]}, time.Minute, 5, 2, 5},
		{"shadows lengthen Keep and nothing else", store.Plan{Limits: limits, Shadow: 2}, time.Hour, 5, 2, 5},
		{"Keep and Bound too small", store.Plan{Limits: limits[:2], Keep: time.Second, Bound: 3}, time.Minute, 5, 2, 5},
		{"Keep and Bound are kept", store.Plan{Limits: limits[:2], Keep: 2 * time.Hour, Bound: 70},
			2 * time.Hour, 70, 2, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.given.Varies = true
			before := test.given
			p := store.NewPlan(test.given)
			if p.Keep != test.keep || p.Bound != test.bound || !p.Varies {
				t.Errorf("Keep %v, Bound %d, Varies %v; want %v, %d, true",
					p.Keep, p.Bound, p.Varies, test.keep, test.bound)
			}
			if p.Smallest() != test.small || p.Largest() != test.most {
				t.Errorf("quotas from %d to %d, want %d to %d", p.Smallest(), p.Largest(), test.small, test.most)
			}
			all := slices.Concat(p.Deciding(), p.Shadows())
			if !slices.Equal(all, p.Limits) || len(p.Shadows()) != p.Shadow {
				t.Errorf("limits %v and shadows %v of %v", p.Deciding(), p.Shadows(), p.Limits)
			}
			if test.given.Keep != before.Keep || test.given.Bound != before.Bound {
				t.Errorf("the given plan was changed to %+v", test.given)
			}
			for cost, never := range map[int]bool{
				1: false, test.small: false, test.small + 1: true, test.most + 1: true,
			} {
				if p.NeverFits(cost) != never {
					t.Errorf("NeverFits(%d) is %v", cost, !never)
				}
			}
		})
	}
}

// A plan that is made of another knows its own quotas.
func TestNewPlanOfAChangedPlan(t *testing.T) {
	changed := *store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: 70, Window: time.Second}}})
	changed.Limits, changed.Bound = []store.Limit{{Quota: 4, Window: time.Second}, {Quota: 3, Window: time.Hour}}, 0
	p := store.NewPlan(changed)
	if p.Smallest() != 3 || p.Largest() != 4 || p.Bound != 4 || p.Keep != time.Hour || !p.NeverFits(4) {
		t.Errorf("%+v, quotas from %d to %d", p, p.Smallest(), p.Largest())
	}
}

// Judge agrees with the definition: a limit denies if used + cost > quota, and a take is allowed if no deciding limit
// denies, or if its mode is ModeRecord. In ModeUpTo it judges a cost of one unit. Grant grants the largest cost for
// which no deciding limit denies.
func FuzzJudge(f *testing.F) {
	for range 20 {
		f.Add(rand.Uint64(), rand.Uint64())
	}
	f.Fuzz(func(t *testing.T, seed1, seed2 uint64) {
		r := rand.New(rand.NewPCG(seed1, seed2))
		for range 200 {
			given := store.Plan{Limits: make([]store.Limit, 1+r.IntN(store.MaxLimits))}
			given.Shadow = r.IntN(len(given.Limits))
			a := store.Answer{Allowed: r.IntN(2) == 0, Denied: store.LimitSet(r.Uint32())} // Judge replaces both
			for i := range given.Limits {
				given.Limits[i] = store.Limit{Quota: 1 + r.IntN(6), Window: time.Duration(1+r.IntN(9)) * time.Second}
				a.State[i].Used = r.IntN(8)
			}
			for i := len(given.Limits); i < store.MaxLimits; i++ {
				a.State[i].Used = 1000 // of no limit
			}
			states := a.State
			p, cost, mode := store.NewPlan(given), 1+r.IntN(8), store.Mode(r.IntN(5))
			p.Judge(&a, cost, mode)
			if p.Grant(&a, cost); a.Granted != grant(p, &a, cost) {
				t.Fatalf("limits %v, the last %d shadows, used %v, cost %d: %d granted, want %d",
					p.Limits, p.Shadow, a.State, cost, a.Granted, grant(p, &a, cost))
			}
			if mode == store.ModeUpTo {
				if cost = 1; a.Allowed != (a.Granted > 0) {
					t.Fatalf("limits %v, used %v: allowed %v, %d granted", p.Limits, a.State, a.Allowed, a.Granted)
				}
			}

			allowed, never := true, false
			for i := range store.MaxLimits {
				denies := i < len(p.Limits) && a.State[i].Used+cost > p.Limits[i].Quota
				if a.Denied.Has(i) != denies {
					t.Fatalf("limits %v, used %v, cost %d: limit %d denies: %v", p.Limits, a.State, cost, i, !denies)
				}
				if i < len(p.Limits)-p.Shadow {
					allowed = allowed && !denies
					never = never || cost > p.Limits[i].Quota
				}
			}
			if a.Allowed != (allowed || mode == store.ModeRecord) {
				t.Fatalf("limits %v, the last %d shadows, used %v, cost %d, mode %d: allowed %v",
					p.Limits, p.Shadow, a.State, cost, mode, a.Allowed)
			}
			if p.NeverFits(cost) != never || a.State != states || a.Retry != 0 || a.Shadow != 0 {
				t.Fatalf("limits %v, cost %d: NeverFits %v, answer %+v", p.Limits, cost, p.NeverFits(cost), a)
			}
		}
	})
}

// grant returns the largest cost up to most that no limit which decides denies.
func grant(p *store.Plan, a *store.Answer, most int) int {
	for i, l := range p.Deciding() {
		for most > 0 && a.State[i].Used+most > l.Quota {
			most--
		}
	}
	return most
}

// Takes of slots count one unit each, whatever they cost, and record no denials.
func TestPlanOfSlots(t *testing.T) {
	limits := []store.Limit{{Quota: 2, Window: time.Second}}
	for _, slots := range []bool{false, true} {
		p := store.NewPlan(store.Plan{Limits: limits, Slots: slots})
		if p.NeverFits(3) == slots || p.NeverFits(2) {
			t.Errorf("slots %v: NeverFits(3) is %v", slots, p.NeverFits(3))
		}
		for mode, want := range map[store.Mode]store.Mode{
			store.ModeCharge: store.ModeCharge, store.ModePeek: store.ModePeek,
			store.ModeRecord: store.ModePeek, store.ModeChargeDenied: store.ModeCharge,
		} {
			units, as := p.Counted(7, mode)
			if slots && (units != 1 || as != want) || !slots && (units != 7 || as != mode) {
				t.Errorf("slots %v, mode %v: counts %d as %v", slots, mode, units, as)
			}
			for used := range 4 {
				var a store.Answer
				a.State[0].Used = used
				p.Judge(&a, 2, mode)
				room := used+units <= 2
				if !slots { // of a cost of 2
					room = used == 0
				}
				if a.Denied.Has(0) == room || a.Allowed != (room || mode == store.ModeRecord && !slots) {
					t.Errorf("slots %v, mode %v, %d used: %+v", slots, mode, used, a)
				}
			}
		}
	}
}

func TestLimitSet(t *testing.T) {
	for set := range 1 << store.MaxLimits {
		for i := range store.MaxLimits {
			if want := set/(1<<i)%2 == 1; store.LimitSet(set).Has(i) != want {
				t.Fatalf("LimitSet(%08b).Has(%d) is %v", set, i, !want)
			}
		}
	}
	if store.LimitSet(255).Has(store.MaxLimits) {
		t.Error("a full set has a limit that no plan has")
	}
}

// A plan that was not made by NewPlan denies as well.
func TestJudgeOfLiterals(t *testing.T) {
	limits := []store.Limit{{Quota: 5, Window: time.Minute}, {Quota: 1, Window: time.Minute}}
	for _, c := range []struct {
		plan    *store.Plan
		used    int
		allowed bool
	}{
		{&store.Plan{Limits: limits[:1]}, 4, true},
		{&store.Plan{Limits: limits[:1]}, 5, false},
		{store.NewPlan(store.Plan{Limits: limits, Shadow: 1}), 4, true},
		{store.NewPlan(store.Plan{Limits: limits, Shadow: 1}), 5, false},
	} {
		var a store.Answer
		a.State[0].Used, a.State[1].Used = c.used, c.used
		if c.plan.Judge(&a, 1, store.ModeCharge); a.Allowed != c.allowed {
			t.Errorf("%+v with %d used: allowed %v", c.plan, c.used, a.Allowed)
		}
	}
}
