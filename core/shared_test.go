package core_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
)

// sharers are two keys that share a log of a full store, which the first has filled.
func sharers(t *testing.T, l *core.Limiter) (first, second string) {
	t.Helper()
	first = "first"
	for askOnce(t, l, first).Allowed {
	}
	for i := range 100_000 {
		second = fmt.Sprint("second ", i)
		d := askOnce(t, l, second)
		if !d.Allowed { // nobody else has used anything
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
		store := core.NewMemoryStore(core.MaxKeys(1))
		occupant := newLimiter(t, core.PerDay(1), core.WithStore(store), core.WithName("occupant"))
		askOnce(t, occupant, "k")
		l := newLimiter(t, core.PerMinute(quota), core.WithStore(store), core.WithCountDenied())
		first, second := sharers(t, l)
		before := store.Shared()
		for range 59 {
			time.Sleep(time.Second)
			for range quota {
				if askOnce(t, l, first).Allowed {
					t.Fatal("allowed beyond the quota")
				}
			}
		}
		if store.Shared() == before {
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
