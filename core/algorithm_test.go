package core_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// algorithmNames has the names of the algorithms in the order of algorithmLimits.
var algorithmNames = []string{"fixed window", "sliding counter", "token bucket"}

// Options that suit none of the limits are errors that name the option and the algorithm. Beside a limit that they suit
// they apply to that one.
func TestWhatAlgorithmsCannotDo(t *testing.T) {
	for i, limit := range algorithmLimits(3, time.Minute) {
		name := algorithmNames[i]
		newWith := func(p core.Policy, opts ...core.Option) error {
			_, err := core.New(p, core.Global(), opts...)
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

// What algorithms count is given back and settled within its period, as an entry of a log is.
func TestAlgorithmsSettle(t *testing.T) {
	refund := core.WithRefund(func(context.Context, int) bool { return true })
	for i, limit := range algorithmLimits(30, time.Minute) {
		for _, p := range []core.Policy{limit, core.Limits{core.PerHour(30), limit}} {
			inBubble(t, algorithmNames[i], func(t *testing.T) {
				l := newLimiter(t, p, refund)
				left := func(want int) {
					t.Helper()
					if d, err := l.Peek(t.Context(), "k"); err != nil || d.Remaining != want {
						t.Errorf("%v, %v; want %d left", d, err, want)
					}
				}
				d, err := l.AllowN(t.Context(), "k", 10)
				if err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
				settle := func(cost, want int) {
					t.Helper()
					if err := d.Settle(t.Context(), cost); err != nil {
						t.Error(err)
					}
					left(want)
				}
				left(20)
				settle(4, 26)
				settle(4, 26)
				settle(12, 18)
				for range 2 {
					if err := d.Undo(t.Context()); err != nil {
						t.Error(err)
					}
					left(30)
				}
				settle(5, 30) // what was given back is not taken again
				late, err := l.AllowN(t.Context(), "k", 7)
				if err != nil || !late.Allowed {
					t.Fatal(late, err)
				}
				time.Sleep(2 * time.Hour) // its period has ended
				d, err = l.AllowN(t.Context(), "k", 3)
				if err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
				if err := late.Undo(t.Context()); err != nil {
					t.Error(err)
				}
				left(27)
			})
		}
	}
}

// lesser is a store that decides over one log at a time, whose limits have one of the algorithms up to one of them.
type lesser struct {
	core.Store

	algorithms store.Algorithm
}

func (l lesser) Validate(plans ...*store.Limit) error {
	for _, p := range plans {
		if p.Algorithm > l.algorithms || len(plans) > 1 {
			return store.OneLog(plans)
		}
	}
	return nil
}

// A store that does not have an algorithm, or cannot decide about several limits, is an error that says so.
func TestStoresWithoutAlgorithms(t *testing.T) {
	newOn := func(p core.Policy, s core.Store) error {
		_, err := core.New(p, core.Global(), core.WithStore(s))
		return err
	}
	fake := new(coretest.FakeStore)
	for i, limit := range algorithmLimits(3, time.Minute) {
		wantFault(t, newOn(limit, lesser{fake, store.SlidingLog}), "With", algorithmNames[i], "this algorithm")
		if err := newOn(limit, lesser{fake, store.TokenBucket}); err != nil {
			t.Errorf("a store of one log, for one limit: %v", err)
		}
		err := newOn(core.Limits{core.PerHour(1), limit}, lesser{fake, store.TokenBucket})
		if err == nil || !strings.Contains(err.Error(), "one log at a time") {
			t.Errorf("a store of one log, for two limits: %v", err)
		}
		if err := newOn(limit, lesser{fake, store.FixedWindow}); i == 0 && err != nil {
			t.Errorf("a store with fixed windows: %v", err)
		} else if i > 0 {
			wantFault(t, err, "With", algorithmNames[i], "this algorithm")
		}
	}
}

// Limits that a request chooses are checked like others: the request is refused, and nothing is charged.
func TestLimitByOfAlgorithms(t *testing.T) {
	type tier struct{}
	limits := algorithmLimits(3, time.Minute)
	choose := core.LimitBy(func(ctx context.Context) core.Limits {
		if i, ok := ctx.Value(tier{}).(int); ok {
			return core.Limits{limits[i]}
		}
		return core.Limits{core.PerMinute(3)}
	})
	in := func(i int) context.Context { return context.WithValue(t.Context(), tier{}, i) }
	for i, name := range algorithmNames {
		l := newLimiter(t, choose, core.WithStore(lesser{new(coretest.FakeStore), store.SlidingLog}))
		_, err := l.Allow(in(i), "k")
		wantFault(t, err, "With", name, "this algorithm")
	}

	// There is nothing to list if no log was chosen.
	for i, name := range algorithmNames {
		l := newLimiter(t, choose)
		if _, err := l.Allow(in(i), "k"); err != nil {
			t.Fatal(err)
		}
		_, err := l.Log(in(i), "k")
		wantFault(t, err, "Log", "")
		if _, err := l.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if entries, err := l.Log(t.Context(), "k"); err != nil || len(entries) != 1 {
			t.Errorf("%s beside a log: %v, %v", name, entries, err)
		}
	}

	// Each of the limits has numbers of its own, whichever was chosen before.
	l := newLimiter(t, choose, core.WithName("tiers"))
	for n := range 4 {
		for i := range limits {
			if d, err := l.Allow(in(i), "k"); err != nil || d.Allowed != (n < 3) {
				t.Errorf("%s, request %d: %+v, %v", algorithmNames[i], n+1, d, err)
			}
		}
		if d, err := l.Allow(t.Context(), "k"); err != nil || d.Allowed != (n < 3) {
			t.Errorf("a log, request %d: %+v, %v", n+1, d, err)
		}
	}
	if err := l.Reset(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	for i := range limits {
		if d, err := l.Peek(in(i), "k"); err != nil || d.Used != 0 {
			t.Errorf("%s after a reset: %+v, %v", algorithmNames[i], d, err)
		}
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
		_, err := core.New(c.limit, core.Global())
		if !errors.As(err, new(*core.ConfigError)) || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%v: %v, want %q", c.limit, err, c.reason)
		}
	}
	if _, err := core.New(core.TokenBucket(core.PerDay(1), 365), core.Global()); err != nil {
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

// The header fields of a response tell the limit as a client has to see it.
func TestHeadersOfAlgorithms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(15 * time.Second) // into a minute
		for i, want := range [][]string{
			{`"2-per-minute";q=2;w=60`, `"2-per-minute";r=1;t=45`, `"2-per-minute";r=0;t=45`, "45", "2"},
			{`"2-per-minute";q=2;w=60`, `"2-per-minute";r=1;t=105`, `"2-per-minute";r=0;t=75`, "75", "2"},
			{`"2-per-minute-burst-2";q=2;w=60`, `"2-per-minute-burst-2";r=1;t=30`, `"2-per-minute-burst-2";r=0;t=30`,
				"30", "2"},
			{`"10-per-second-burst-50";q=50;w=5`, `"10-per-second-burst-50";r=49;t=1`,
				`"10-per-second-burst-50";r=0;t=1`, "1", "50"},
		} {
			limit := append(algorithmLimits(2, time.Minute), core.TokenBucket(core.PerSecond(10), 50))[i]
			l := newLimiter(t, limit, core.WithHeaders(core.HeadersBoth))
			send := func() http.Header {
				d, err := l.Check(web{httptest.NewRequest(http.MethodGet, "/", nil)})
				if err != nil {
					t.Fatal(err)
				}
				h := make(http.Header)
				d.SetHeaders(h)
				return h
			}
			first := send()
			if first.Get("RateLimit-Policy") != want[0] || first.Get("RateLimit") != want[1] ||
				first.Get("X-RateLimit-Limit") != want[4] || first.Get("Retry-After") != "" {
				t.Errorf("%v: %q", limit, first)
			}
			for l := first; l.Get("Retry-After") == ""; {
				l = send()
			}
			denied := send()
			if denied.Get("RateLimit-Policy") != want[0] || denied.Get("RateLimit") != want[2] ||
				denied.Get("Retry-After") != want[3] || denied.Get("X-RateLimit-Reset") != want[3] ||
				denied.Get("X-RateLimit-Remaining") != "0" || denied.Get("Cache-Control") != "no-store" {
				t.Errorf("%v denied: %q", limit, denied)
			}
		}
		mixed := core.Limits{core.PerHour(5)}
		for i, limit := range algorithmLimits(5, time.Minute) {
			limit.Name = "abc"[i : i+1]
			mixed = append(mixed, limit)
		}
		d, err := newLimiter(t, mixed).AllowN(t.Context(), "k", 2)
		if err != nil {
			t.Fatal(err)
		}
		h := make(http.Header)
		d.SetHeaders(h)
		policy := `"5-per-hour";q=5;w=3600, "a";q=5;w=60, "b";q=5;w=60, "c";q=5;w=60`
		left := `"5-per-hour";r=3;t=3600, "a";r=3;t=45, "b";r=3;t=75, "c";r=3;t=12`
		if h.Get("RateLimit-Policy") != policy || h.Get("RateLimit") != left {
			t.Errorf("several limits: %q, want %s and %s", h, policy, left)
		}
	})
}

// Callers that wait get the units as they come back, in order, and no sooner.
func TestWaitOfAlgorithms(t *testing.T) {
	for i, limit := range algorithmLimits(2, time.Minute) {
		inBubble(t, algorithmNames[i], func(t *testing.T) {
			time.Sleep(15 * time.Second)
			l := newLimiter(t, limit)
			began := time.Now()
			var mu sync.Mutex
			var at []string
			for n := range 6 {
				go func() {
					if d, err := l.Wait(t.Context(), "k"); err != nil || !d.Allowed {
						t.Errorf("%+v, %v", d, err)
					}
					mu.Lock()
					defer mu.Unlock()
					at = append(at, fmt.Sprint(n, ":", time.Since(began)))
				}()
				synctest.Wait()
			}
			time.Sleep(10 * time.Minute)
			want := []string{
				"[0:0s 1:0s 2:45s 3:45s 4:1m45s 5:1m45s]",
				"[0:0s 1:0s 2:1m15s 3:1m45s 4:2m45s 5:3m45s]",
				"[0:0s 1:0s 2:30s 3:1m0s 4:1m30s 5:2m0s]",
			}[i]
			mu.Lock()
			if got := fmt.Sprint(at); got != want {
				t.Errorf("admitted at %s, want %s", got, want)
			}
			mu.Unlock()
			if _, err := l.WaitN(t.Context(), "k", 3); !errors.Is(err, core.ErrCostExceedsQuota) {
				t.Errorf("more than there ever are: %v", err)
			}
			l.AllowN(t.Context(), "k", 2)
			began = time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			d, err := l.WaitN(ctx, "k", 2)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 0 || d.RetryAfter <= time.Second {
				t.Errorf("a context that ends before: %+v, %v after %v", d, err, time.Since(began))
			}
			if d, err := l.WaitN(t.Context(), "k", 2); err != nil || !d.Allowed || d.Used != 0 {
				t.Errorf("all units: %+v, %v", d, err)
			}
		})
	}
}

// cancels ends the context of a caller while its take is executed.
type cancels struct {
	*coretest.FakeStore

	cancel context.CancelFunc
}

func (s *cancels) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	s.cancel()
	return s.FakeStore.Take(ctx, takes, answers)
}

// A wait that ends with its context gives its units back, and holds no permit.
func TestCancelledWaitOfAlgorithms(t *testing.T) {
	for i, limit := range algorithmLimits(5, time.Minute) {
		inBubble(t, algorithmNames[i], func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			s := &cancels{new(coretest.FakeStore), cancel}
			l := newLimiter(t, core.Limits{limit, core.InFlight(1)}, core.WithStore(s), core.WithDenyCache(0))
			defer l.Close()
			if _, err := l.Wait(ctx, "k"); !errors.Is(err, context.Canceled) {
				t.Errorf("Wait: %v", err)
			}
			d, err := l.Allow(t.Context(), "k")
			if err != nil || !d.Allowed || d.Used != 0 {
				t.Errorf("%+v, %v: want the permit to be free, and nothing counted", d, err)
			}
			if err := d.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Bans count denials of any algorithm.
func TestBansOfAlgorithms(t *testing.T) {
	for i, limit := range algorithmLimits(1, time.Second) {
		inBubble(t, algorithmNames[i], func(t *testing.T) {
			l := newLimiter(t, limit, core.WithBan(3, time.Minute, time.Minute))
			for n := range 6 {
				d, err := l.Allow(t.Context(), "k")
				if err != nil || d.Allowed != (n == 0) || d.Banned != (n >= 3) {
					t.Errorf("request %d: %+v, %v", n+1, d, err)
				}
			}
			time.Sleep(30 * time.Second)
			if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Banned {
				t.Errorf("within the ban: %+v, %v", d, err)
			}
			if err := l.Reset(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed {
				t.Errorf("after a reset: %+v, %v", d, err)
			}
		})
	}
}

// Keys leave a memory store when their numbers say nothing any more, and not before.
func TestNumbersLeaveMemory(t *testing.T) {
	for i, limit := range algorithmLimits(3, time.Minute) {
		beside := core.Limits{core.PerSecond(9), limit}
		for name, p := range map[string]core.Policy{"alone": limit, "beside a log": beside} {
			inBubble(t, algorithmNames[i]+" "+name, func(t *testing.T) {
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
	for i, limit := range algorithmLimits(3, time.Minute) {
		beside := core.Limits{core.PerSecond(9), limit}
		for name, p := range map[string]core.Policy{"alone": limit, "beside a log": beside} {
			inBubble(t, algorithmNames[i]+" "+name, func(t *testing.T) {
				const places = 50
				s := core.NewMemoryStore(core.WithMaxKeys(places))
				l := newLimiter(t, p, core.WithStore(s))
				admitted, total := map[string]int{}, 0
				for n := range 20_000 {
					key := fmt.Sprint("key ", n%4000)
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
				for _, key := range []string{"key 1", "key 3999"} { // also of numbers that were shared
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
	for i, limit := range algorithmLimits(1, time.Minute) {
		inBubble(t, algorithmNames[i], func(t *testing.T) {
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

// Requests over the same numbers in either order neither wait for each other forever nor admit too many or too few.
func TestAlgorithmsInEitherOrder(t *testing.T) {
	type org struct{}
	const quota, callers, each = 300, 32, 40
	for i, limit := range algorithmLimits(quota, 24*time.Hour) {
		inBubble(t, algorithmNames[i], func(t *testing.T) {
			s := core.NewMemoryStore()
			limit.Name = "shared"
			user := algorithmLimits(1000, 24*time.Hour)[(i+1)%3]
			user.Name = "user"
			shared := limit.By(core.ByValue(org{}))
			ahead := newLimiter(t, core.Limits{user, shared}, core.WithStore(s), core.WithName("orders"))
			behind := newLimiter(t, core.Limits{shared, user}, core.WithStore(s), core.WithName("orders"))
			ctx := context.WithValue(t.Context(), org{}, "acme")
			var units atomic.Int64
			var wg sync.WaitGroup
			for n := range callers {
				wg.Go(func() {
					l := []*core.Limiter{ahead, behind}[n%2]
					for range each {
						d, err := l.Allow(ctx, fmt.Sprint(n%5))
						if err != nil {
							t.Error(err)
						}
						units.Add(int64(d.Granted))
					}
				})
			}
			wg.Wait()
			used := 0
			for n := range 5 {
				d, err := newLimiter(t, user, core.WithStore(s), core.WithName("orders")).Peek(ctx, fmt.Sprint(n))
				if err != nil {
					t.Fatal(err)
				}
				used += d.Used
			}
			if units.Load() != quota || used != quota {
				t.Errorf("%d admitted, %d in the users' numbers, want %d", units.Load(), used, quota)
			}
		})
	}
}

// A customer who changes to a larger plan keeps what was used, and limits of different windows never share numbers.
func TestNumbersOfPlans(t *testing.T) {
	for desc, of := range map[string]func(quota int) core.Limit{
		"calendar": core.PerMonth,
		"window":   func(quota int) core.Limit { return core.PerHour(quota).With(core.FixedWindow) },
		"counter":  func(quota int) core.Limit { return core.PerHour(quota).With(core.SlidingCounter) },
	} {
		synctest.Test(t, func(t *testing.T) {
			var limits core.Limits
			l, err := core.New(core.LimitBy(func(context.Context) core.Limits { return limits }), core.Global())
			if err != nil {
				t.Fatal(err)
			}
			left := func(want int, now ...core.Limit) {
				t.Helper()
				limits = now
				d, err := l.Allow(t.Context(), "k")
				if err != nil || d.Remaining != want || d.Allowed != (want >= 0 && d.RetryAfter == 0) {
					t.Errorf("%s, %v: %+v, %v; want %d left", desc, now, d, err, want)
				}
			}
			left(1, of(2))
			left(0, of(2))
			left(2, of(5))
			left(0, of(2)) // denied
			left(1, of(5))
			named := func(window time.Duration) core.Limit {
				return core.Limit{Quota: 2, Window: window, Name: "api"}.With(core.FixedWindow)
			}
			left(1, named(2*time.Hour))
			left(1, named(time.Minute))
			left(0, named(2*time.Hour))
		})
	}
}
