package core_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// sharers are two keys that share a log of a full store, which the first has filled.
func sharers(t *testing.T, l *core.Limiter) (first, second string) {
	t.Helper()
	first = "first"
	for allowed := true; allowed; {
		allowed = askOnce(t, l, first).Allowed
	}
	for i := range 100_000 {
		second = fmt.Sprint("second ", i)
		d := askOnce(t, l, second)
		if !d.Allowed { // no other key has used anything
			return first, second
		}
		if err := d.Undo(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("no key is denied for what another has used")
	return "", ""
}

func askOnce(t *testing.T, l *core.Limiter, key string) core.Decision {
	t.Helper()
	d, err := l.Allow(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Where keys share a log, one that keeps trying does not keep the other out, though its denials count where it is
// alone.
func TestDenialsInASharedLogKeepNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quota = 3
		logs := core.NewMemoryStore(core.WithMaxKeys(1))
		occupant := newLimiter(t, core.PerDay(1), core.WithStore(logs), core.WithName("occupant"))
		askOnce(t, occupant, "k")
		l := newLimiter(t, core.PerMinute(quota), core.WithStore(logs), core.WithCountDenied())
		first, second := sharers(t, l)
		for key, want := range map[string]int{first: quota, second: 0} { // each sees its own entries
			if entries, err := l.Log(t.Context(), key); err != nil || len(entries) != want {
				t.Errorf("%d entries of %q, %v; want %d", len(entries), key, err, want)
			}
		}
		if err := l.Reset(t.Context(), second); err != nil || askOnce(t, l, first).Allowed {
			t.Errorf("%v, or a key that has used nothing has reset what another has", err)
		}
		before := logs.Shared()
		for range 59 {
			time.Sleep(time.Second)
			for range quota {
				if askOnce(t, l, first).Allowed {
					t.Fatal("allowed beyond the quota")
				}
			}
		}
		if logs.Shared() == before {
			t.Fatal("these denials were not of a shared log, so the test proves nothing")
		}
		time.Sleep(time.Second)
		for i := range quota {
			if d := askOnce(t, l, second); !d.Allowed || d.Used != i {
				t.Errorf("request %d when what was admitted has left: allowed %v, used %d", i+1, d.Allowed, d.Used)
			}
		}
		if askOnce(t, l, first).Allowed {
			t.Error("allowed though the log holds its quota again")
		}
	})
}

// Two limiters of one name choose windows by the request, each of which has a log. Requests under short ones take nothing
// from long ones, nor add to them, in logs of the key's own and in shared ones.
func TestShortWindowsTakeNothingFromLongOnes(t *testing.T) {
	for _, full := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			logs := core.NewMemoryStore(core.WithMaxKeys(1))
			if full {
				askOnce(t, newLimiter(t, core.PerDay(1), core.WithStore(logs), core.WithName("occupant")), "k")
			}
			named := func(limit core.Limit) *core.Limiter {
				choose := core.LimitBy(func(context.Context) core.Limits { return core.Limits{limit} })
				return newLimiter(t, choose, core.WithStore(logs), core.WithName("plan"))
			}
			hour, second := named(core.PerHour(3)), named(core.PerSecond(100))
			askOnce(t, hour, "k")
			for i := range 5 {
				time.Sleep(time.Minute)
				if d := askOnce(t, second, "k"); !d.Allowed || d.Used != 0 {
					t.Errorf("after %d minutes: allowed %v, used %d", i+1, d.Allowed, d.Used)
				}
			}
			if d := askOnce(t, hour, "k"); !d.Allowed || d.Used != 1 {
				t.Errorf("full %v: allowed %v, used %d of the hour; want 1", full, d.Allowed, d.Used)
			}
			if shared := logs.Shared() > 0; shared != full {
				t.Errorf("full %v: %d takes of shared logs", full, logs.Shared())
			}
		})
	}
}

// Merged entries stay although no take has read them yet, while other keys come and go.
func TestMergedEntriesAreNotSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := core.NewMemoryStore()
		key, hour := store.NewKey("merged", "k"), &store.Limit{Log: "1h", Quota: 9, Window: time.Hour}
		m := store.MergeRequest{
			Key: key, Limit: hour, Entries: []store.Entry{{ID: 1, Age: time.Minute, Cost: 2}, {ID: 2, Cost: 1}},
		}
		if err := logs.Merge(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		others := newLimiter(t, core.Limit{Quota: 1, Window: core.MinWindow},
			core.WithStore(logs), core.WithName("others"))
		for i := range 20_000 {
			if i%100 == 0 {
				time.Sleep(time.Second)
			}
			askOnce(t, others, fmt.Sprint(i))
		}
		if n := logs.Keys(); n > 10_000 {
			t.Errorf("%d keys: nothing was swept, so the test proves nothing", n)
		}
		if entries, err := logs.Log(t.Context(), key, hour); err != nil || len(entries) != 2 {
			t.Errorf("%v, %v; want both entries", entries, err)
		}
	})
}

// Units that are recorded after they have left the window take nothing, also where keys share a log, in which they
// cannot be as old as they are.
func TestSettledAfterTheWindowInASharedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := core.NewMemoryStore(core.WithMaxKeys(1))
		askOnce(t, newLimiter(t, core.PerDay(1), core.WithStore(logs), core.WithName("occupant")), "k")
		l := newLimiter(t, core.Limits{core.PerMinute(5), core.PerMinute(100).Of("tokens")}, core.WithStore(logs))
		for after, want := range map[time.Duration]int{time.Minute - 1: 60, time.Minute: 0} {
			d := allowCosts(t, l, nil, true)
			time.Sleep(after)
			if err := d.SettleCosts(t.Context(), core.Costs{"tokens": 60}); err != nil {
				t.Error(err)
			}
			if d, err := l.Peek(t.Context(), "k"); err != nil || d.Limits()[1].Used != want {
				t.Errorf("after %v: %v, %v; want %d tokens used", after, d.Limits(), err, want)
			}
			time.Sleep(time.Minute)
		}
	})
}
