package core_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/testlen"
)

// algorithmLimits returns a limit of each algorithm, by its name, that admits quota units at once and in a minute.
func algorithmLimits(quota int) map[string]core.Limit {
	l := core.Limit{Quota: quota, Window: time.Minute}
	return map[string]core.Limit{
		"fixed window": l.With(core.FixedWindow), "sliding counter": l.With(core.SlidingCounter),
		"token bucket": core.TokenBucket(l, quota),
	}
}

// A full memory store has keys share numbers: no key gets more than its quota, and all together no more than those of
// the places.
func TestFullStoreOfAlgorithms(t *testing.T) {
	testlen.SkipRace(t)
	for name, limit := range algorithmLimits(3) {
		beside := core.Limits{core.PerSecond(9), limit}
		for company, p := range map[string]core.Policy{"alone": limit, "beside a log": beside} {
			inBubble(t, name+" "+company, func(t *testing.T) {
				const places = 50
				s := core.NewMemoryStore(core.WithMaxKeys(places))
				l := newLimiter(t, p, core.WithStore(s))
				admitted, total := map[string]int{}, 0
				for n := range 6000 {
					key := fmt.Sprint("key ", n%2000)
					d, err := l.AllowAtMost(t.Context(), key, 1+n%3)
					if err != nil {
						t.Fatal(err)
					}
					if admitted[key] += d.Granted; admitted[key] > 3 {
						t.Fatalf("%s: %d admitted", key, admitted[key])
					}
					total += d.Granted
				}
				if most := (places + 64*16) * 3; total > most || s.Shared() == 0 || s.Keys() > places {
					t.Errorf("%d admitted, want %d at most; %d takes of shared logs, %d keys",
						total, most, s.Shared(), s.Keys())
				}
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if s.Keys() != 0 {
					t.Errorf("%d keys in the end", s.Keys())
				}
				for _, key := range []string{"key 1", "key 1999"} { // also of numbers that were shared
					if d, err := l.AllowN(t.Context(), key, 3); err != nil || !d.Allowed {
						t.Errorf("%s, after all have left: %+v, %v", key, d, err)
					}
				}
			})
		}
	}
}

// A key that has drawn from shared numbers stays with them until they say nothing any more: with the next free place it
// would have a second quota.
func TestNoSecondQuotaOutOfSharedNumbers(t *testing.T) {
	for name, limit := range algorithmLimits(1) {
		inBubble(t, name, func(t *testing.T) {
			s := core.NewMemoryStore(core.WithMaxKeys(1))
			l := newLimiter(t, limit, core.WithStore(s))
			take := func(key string, want bool) core.Decision {
				t.Helper()
				d, err := l.Allow(t.Context(), key)
				if err != nil || d.Allowed != want {
					t.Errorf("%s: %+v, %v; want allowed %v", key, d, err, want)
				}
				return d
			}
			time.Sleep(10 * time.Second)
			take("a", true)
			take("b", true)
			if err := l.Reset(t.Context(), "a"); err != nil || s.Keys() != 0 {
				t.Fatalf("%d keys, %v", s.Keys(), err)
			}
			d := take("b", false)
			time.Sleep(d.RetryAfter - time.Microsecond)
			take("b", false)
			time.Sleep(time.Microsecond)
			take("b", true)
			take("b", false)
			time.Sleep(3 * time.Minute)
			take("b", true)
			if s.Keys() != 1 {
				t.Errorf("%d keys, want b's own numbers now", s.Keys())
			}
		})
	}
}
