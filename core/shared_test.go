package core_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

func askOnce(t *testing.T, l *core.Limiter, key string) core.Decision {
	t.Helper()
	d, err := l.Allow(t.Context(), key)
	must(t, err)
	return d
}

// Merged entries stay although no take has read them yet, while other keys come and go.
func TestMergedEntriesAreNotSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := core.NewMemoryStore()
		key, hour := store.NewKey("merged", "k"), &store.Limit{Log: "1h", Quota: 9, Window: time.Hour}
		m := store.MergeRequest{
			Key: key, Limit: hour, Entries: []store.Entry{{ID: 1, Age: time.Minute, Cost: 2}, {ID: 2, Cost: 1}},
		}
		must(t, logs.Merge(t.Context(), m))
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
			d := allowCosts(t, l, nil)
			time.Sleep(after)
			noError(t, d.SettleCosts(t.Context(), core.Costs{"tokens": 60}))
			if d, err := l.Peek(t.Context(), "k"); err != nil || d.Limits()[1].Used != want {
				t.Errorf("after %v: %v, %v; want %d tokens used", after, d.Limits(), err, want)
			}
			time.Sleep(time.Minute)
		}
	})
}
