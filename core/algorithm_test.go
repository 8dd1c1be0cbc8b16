package core_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// wantFault checks for a ConfigError about an option, with a value, whose text has the words.
func wantFault(t *testing.T, err error, option, value string, words ...string) {
	t.Helper()
	for _, f := range configErrors(err) {
		lacks := func(word string) bool { return !strings.Contains(f.Problem+"; "+f.Remedy, word) }
		if f.Option == option && (value == "" || f.Value == value) && !slices.ContainsFunc(words, lacks) {
			return
		}
	}
	t.Errorf("%v; want a ConfigError of %s with %q and %q", err, option, value, words)
}

// configErrors returns the errors that err joins.
func configErrors(err error) (all []*core.ConfigError) {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range several.Unwrap() {
			all = append(all, configErrors(e)...)
		}
		return all
	}
	if one := (*core.ConfigError)(nil); errors.As(err, &one) {
		all = append(all, one)
	}
	return all
}

// algorithmLimits returns a limit of each algorithm, by its name, that admits quota units at once and in a minute.
func algorithmLimits(quota int) map[string]core.Limit {
	l := core.Limit{Quota: quota, Window: time.Minute}
	return map[string]core.Limit{
		"fixed window": l.With(core.FixedWindow), "sliding counter": l.With(core.SlidingCounter),
		"token bucket": core.TokenBucket(l, quota),
	}
}

// Options that suit none of the limits are errors that name the option and the algorithm. Beside a limit that they suit
// they apply to that one.
func TestWhatAlgorithmsCannotDo(t *testing.T) {
	for name, limit := range algorithmLimits(3) {
		newWith := func(p core.Policy, opts ...core.Option) error {
			_, err := core.New(p, core.ByText(), opts...)
			return err
		}
		countDenied, failLocal := core.WithCountDenied(), core.WithFailure(core.FailLocal)
		wantFault(t, newWith(limit, countDenied), "WithCountDenied", name, "cannot count denials")
		wantFault(t, newWith(limit, failLocal), "WithFailure(FailLocal)", name, "outage")
		wantFault(t, newWith(limit, core.WithLease(20*time.Millisecond)), "WithLease", name)
		both := newWith(limit, countDenied, failLocal)
		wantFault(t, both, "WithCountDenied", name)
		wantFault(t, both, "WithFailure(FailLocal)", name)
		beside := core.Limits{core.PerHour(9), limit}
		if err := newWith(beside, countDenied, failLocal, core.WithLease(20*time.Millisecond)); err != nil {
			t.Errorf("a %s beside a log: %v", name, err)
		}
		l := newLimiter(t, limit)
		_, err := l.Log(t.Context(), "k")
		wantFault(t, err, "Log", "")
	}
}

// A store that does not have an algorithm is an error that says so.
func TestStoresWithoutAlgorithms(t *testing.T) {
	for name, limit := range algorithmLimits(3) {
		_, err := core.New(limit, core.ByText(), core.WithStore(oneLog{new(coretest.FakeStore)}))
		wantFault(t, err, "With", name, "this algorithm")
	}
}

func TestInvalidAlgorithms(t *testing.T) {
	for _, c := range []struct {
		limit  core.Limit
		reason string
	}{
		{core.TokenBucket(core.PerSecond(10), 0), "the burst 0 is out of range; choose 1 to 1000000000 units"},
		{core.TokenBucket(core.PerSecond(10), -1), "the burst -1 is out of range"},
		{core.TokenBucket(core.PerSecond(10), core.MaxQuota+1), "the burst 1000000001 is out of range"},
		{core.TokenBucket(core.PerDay(1), 366), "takes longer than 365d to fill"},
		{core.TokenBucket(core.PerSecond(0), 1), "the quota is out of range; choose 1 to"},
		{core.TokenBucket(core.TokenBucket(core.PerSecond(10), 5), 5), "a plain rate"},
		{core.TokenBucket(core.PerSecond(10).With(core.FixedWindow), 5), "a plain rate"},
		{core.TokenBucket(core.PerSecond(10), 5).With(core.FixedWindow), "a fixed window has no burst"},
		{core.TokenBucket(core.PerSecond(10), 5).With(core.SlidingLog), "a sliding log has no burst"},
		{core.PerSecond(10).With(core.Algorithm(9)), "there is no algorithm 9"},
		{core.PerSecond(10).With(store.TokenBucket), "the burst 0 is out of range"},
		{core.InFlight(4).With(core.FixedWindow), "cannot count requests in flight"},
		{core.TokenBucket(core.InFlight(4), 2), "cannot count requests in flight"},
	} {
		_, err := core.New(c.limit, core.ByText())
		if !errors.As(err, new(*core.ConfigError)) || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%v: %v, want %q", c.limit, err, c.reason)
		}
	}
	if _, err := core.New(core.TokenBucket(core.PerDay(1), 365), core.ByText()); err != nil {
		t.Errorf("a bucket that is full within 365 days: %v", err)
	}
}

func TestParseTokenBucket(t *testing.T) {
	for text, want := range map[string]core.Limit{
		"10/second burst 50":    core.TokenBucket(core.PerSecond(10), 50),
		"10 per 5m burst 1":     core.TokenBucket(core.Limit{Quota: 10, Window: 5 * time.Minute}, 1),
		"1/day burst 365":       core.TokenBucket(core.PerDay(1), 365),
		" 10/second  burst  7 ": core.TokenBucket(core.PerSecond(10), 7),
	} {
		got, err := core.ParseLimit(text)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
		if again, err := core.ParseLimit(got.String()); err != nil || again != got {
			t.Errorf("%q, printed %q: %v, %v", text, got, again, err)
		}
	}
	for text, words := range map[string]string{
		"10/second burst":            "window",
		"10/second burst ":           `the burst "" is not`,
		"10/second burst x":          `the burst "x" is not`,
		"10/second burst -1":         `the burst "-1" is not`,
		"10/second burst +1":         `the burst "+1" is not`,
		"10/second burst 0":          "the burst 0 is out of range",
		"10/second burst 1000000001": "the burst 1000000001 is out of range",
		"10/second burst 1e30":       `the burst "1e30" is not`,
		"10/second burst 5 burst 5":  "burst",
		"4 in flight burst 5":        "burst",
		"1/day burst 366":            "to fill",
		"burst 5":                    "write a quota and a window",
	} {
		l, err := core.ParseLimit(text)
		if !errors.As(err, new(*core.ConfigError)) || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v, %v; want %q", text, l, err, words)
		}
	}
}

// Keys leave a memory store when their numbers say nothing any more, and not before.
func TestNumbersLeaveMemory(t *testing.T) {
	for name, limit := range algorithmLimits(3) {
		beside := core.Limits{core.PerSecond(9), limit}
		for company, p := range map[string]core.Policy{"alone": limit, "beside a log": beside} {
			inBubble(t, name+" "+company, func(t *testing.T) {
				s := core.NewMemoryStore()
				l := newLimiter(t, p, core.WithStore(s))
				for n := range 500 {
					if d, err := l.AllowN(t.Context(), fmt.Sprint(n), 3); err != nil || !d.Allowed {
						t.Fatalf("%+v, %v", d, err)
					}
				}
				if s.Keys() != 500 {
					t.Errorf("%d keys, want 500", s.Keys())
				}
				for range 59 { // denials and peeks change nothing
					time.Sleep(time.Second)
					if d, err := l.AllowN(t.Context(), "7", 3); err != nil || d.Allowed {
						t.Fatalf("%+v, %v", d, err)
					}
				}
				if s.Keys() < 500 {
					t.Errorf("%d keys a second before a minute is over, want at least 500", s.Keys())
				}
				if d, err := l.Peek(t.Context(), "9"); err != nil || d.Used == 0 {
					t.Errorf("%+v, %v", d, err)
				}
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if s.Keys() != 0 {
					t.Errorf("%d keys in the end", s.Keys())
				}
			})
		}
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
