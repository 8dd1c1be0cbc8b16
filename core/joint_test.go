package core_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/store"
)

type (
	orgKey    struct{}
	personKey struct{}
)

// inOrg returns a context of a user's call that names the organisation.
func inOrg(ctx context.Context, org string) context.Context {
	return context.WithValue(ctx, orgKey{}, org)
}

func perUserAndOrg(user, org int) core.Limits {
	return core.Limits{core.PerMinute(user), core.PerMinute(org).By(core.ByValue(orgKey{}))}
}

// A user who is denied by a limit of his own takes nothing of his organisation's, on any store that decides over
// several logs.
func TestDeniedUserTakesNothingOfTheOrganisation(t *testing.T) {
	for name, s := range map[string]core.Store{
		"memory": core.NewMemoryStore(), "wrapped": struct{ store.Full }{core.NewMemoryStore()},
		"fake": &coretest.FakeStore{},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, perUserAndOrg(3, 100), core.WithStore(s), core.WithDenyCache(0))
			ctx := inOrg(t.Context(), "acme")
			admitted := 0
			for range 120 {
				d, err := l.Allow(ctx, "ann")
				if err != nil {
					t.Fatal(err)
				}
				if d.Allowed {
					admitted++
				} else if strings.Join(d.Violated, " ") != "3-per-minute" || d.RetryAfter <= 0 || d.Remaining != 0 {
					t.Fatalf("denied: %v", d)
				}
			}
			left := 0
			for n := range 200 {
				d, err := l.Allow(ctx, fmt.Sprint("colleague", n))
				if err != nil {
					t.Fatal(err)
				}
				if d.Allowed {
					left++
				} else if strings.Join(d.Violated, " ") != "100-per-minute" {
					t.Fatalf("denied: %v", d)
				}
			}
			if admitted != 3 || left != 97 {
				t.Errorf("%d of 3 for the user, %d of 97 left for the organisation", admitted, left)
			}
			if d, err := l.Allow(inOrg(t.Context(), "other"), "eve"); err != nil || !d.Allowed {
				t.Errorf("another organisation: %v, %v", d, err)
			}
		})
	}
}

// Undo and Settle change what was taken from all logs.
func TestUndoOverSeveralLogs(t *testing.T) {
	l := newLimiter(t, perUserAndOrg(5, 8))
	ctx := inOrg(t.Context(), "acme")
	used := func(user string) (int, int) {
		t.Helper()
		d, err := l.Peek(ctx, user)
		if err != nil {
			t.Fatal(err)
		}
		h := make(http.Header)
		d.SetHeaders(h)
		var own, org int
		for i, item := range strings.Split(h.Get("Ratelimit"), ", ") {
			_, numbers, _ := strings.Cut(item, ";")
			if _, err := fmt.Sscanf(numbers, "r=%d", []*int{&own, &org}[i]); err != nil {
				t.Fatal(err)
			}
		}
		return 5 - own, 8 - org
	}
	want := func(user string, own, org int) {
		t.Helper()
		if gotOwn, gotOrg := used(user); gotOwn != own || gotOrg != org {
			t.Errorf("used %d and %d, want %d and %d", gotOwn, gotOrg, own, org)
		}
	}
	first, err := l.AllowN(ctx, "ann", 2)
	if err != nil || !first.Allowed {
		t.Fatalf("%v, %v", first, err)
	}
	second, err := l.AllowN(ctx, "bob", 3)
	if err != nil || !second.Allowed {
		t.Fatalf("%v, %v", second, err)
	}
	want("ann", 2, 5)
	want("bob", 3, 5)
	if err := second.Settle(ctx, 1); err != nil {
		t.Fatal(err)
	}
	want("bob", 1, 3)
	for range 2 {
		if err := first.Undo(ctx); err != nil {
			t.Fatal(err)
		}
		want("ann", 0, 1)
	}
	want("bob", 1, 1)
}

// The wait is that of the limit which has room last, and exact.
func TestWaitOverSeveralLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, org := time.Now(), core.ByValue(orgKey{})
		l := newLimiter(t, core.Limits{
			core.PerMinute(1), core.PerHour(2).By(org), core.PerSecond(100).By(core.Global()),
		})
		ctx := inOrg(t.Context(), "acme")
		for i, step := range []struct {
			user     string
			at       time.Duration
			allowed  bool
			wait     time.Duration
			violated string
		}{
			{"ann", 0, true, 0, ""},
			{"ann", 10 * time.Second, false, 50 * time.Second, "1-per-minute"},
			{"bob", 10 * time.Second, true, 0, ""},
			{"bob", 20 * time.Second, false, time.Hour - 20*time.Second, "1-per-minute 2-per-hour"},
			{"eve", 20 * time.Second, false, time.Hour - 20*time.Second, "2-per-hour"},
			{"eve", time.Hour - time.Microsecond, false, time.Microsecond, "2-per-hour"},
			{"eve", time.Hour, true, 0, ""},
		} {
			time.Sleep(step.at - time.Since(start))
			d, err := l.Allow(ctx, step.user)
			if err != nil || d.Allowed != step.allowed || d.RetryAfter != step.wait ||
				strings.Join(d.Violated, " ") != step.violated {
				t.Errorf("step %d: %v, %v, want %+v", i, d, err, step)
			}
		}
		began := time.Now()
		short, cancel := context.WithTimeout(ctx, 2*time.Hour)
		defer cancel()
		d, err := l.Wait(short, "zoe")
		if err != nil || !d.Allowed || time.Since(began) != 10*time.Second {
			t.Errorf("%v, %v after %v", d, err, time.Since(began))
		}
	})
}

// Limits that a request chooses, shadows, bans and counted denials have keys of their own as well.
func TestKeysOfLimitsWithOtherOptions(t *testing.T) {
	org := core.ByValue(orgKey{})
	ctx := inOrg(t.Context(), "acme")
	t.Run("LimitBy", func(t *testing.T) {
		quota := 2
		l := newLimiter(t, core.LimitBy(func(context.Context) core.Limits {
			return core.Limits{core.PerMinute(100), core.PerMinute(quota).By(org)}
		}))
		for i, want := range []bool{true, true, false} {
			if d, err := l.Allow(ctx, fmt.Sprint(i)); err != nil || d.Allowed != want {
				t.Errorf("%d: %v, %v", i, d, err)
			}
		}
		quota = 3 // the organisation keeps what it has used
		for i, want := range []bool{true, false} {
			if d, err := l.Allow(ctx, fmt.Sprint("x", i)); err != nil || d.Allowed != want {
				t.Errorf("quota 3, %d: %v, %v", i, d, err)
			}
		}
	})
	t.Run("WithShadow", func(t *testing.T) {
		var shadow *core.Decision
		l := newLimiter(t, core.PerMinute(100), core.WithShadow(core.PerMinute(2).By(org)),
			core.WithObserver(func(_ context.Context, e core.Event) { shadow = e.Shadow }))
		for i := range 3 {
			d, err := l.Allow(ctx, fmt.Sprint(i))
			if err != nil || !d.Allowed || shadow == nil || shadow.Allowed != (i < 2) ||
				i == 2 && shadow.RetryAfter == 0 {
				t.Errorf("%d: %v, %v, shadow %v", i, d, err, shadow)
			}
		}
	})
	t.Run("WithBan", func(t *testing.T) {
		l := newLimiter(t, core.Limits{core.PerMinute(2), core.PerHour(2).By(org)},
			core.WithBan(2, time.Hour, time.Minute))
		for i, want := range []string{"", "", "2-per-minute 2-per-hour", "ban", "ban"} {
			d, err := l.Allow(ctx, "ann")
			if err != nil || strings.Join(d.Violated, " ") != want {
				t.Errorf("%d: %v, %v", i, d, err)
			}
		}
		if d, err := l.Allow(inOrg(t.Context(), "other"), "bob"); err != nil || !d.Allowed {
			t.Errorf("%v, %v", d, err)
		}
	})
	t.Run("WithCountDenied", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, core.Limits{core.PerMinute(1), core.PerMinute(3).By(org)}, core.WithCountDenied())
			for range 10 {
				if _, err := l.Allow(ctx, "ann"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(30 * time.Second)
			}
			for i, want := range []bool{true, true, true, false} { // ann's denials were recorded in her log alone
				if d, err := l.Allow(ctx, fmt.Sprint("colleague", i)); err != nil || d.Allowed != want {
					t.Errorf("%d: %v, %v", i, d, err)
				}
			}
		})
	})
}

// Keys of one kind have logs of their own if their limits are Named, whatever the order of these.
func TestKeysOfOneKind(t *testing.T) {
	key := func(k any) core.Key {
		return core.By(func(ctx context.Context) (string, error) {
			text, _ := ctx.Value(k).(string)
			return text, nil
		})
	}
	s := core.NewMemoryStore()
	a, b := core.PerMinute(1).By(key(orgKey{})).Named("org"), core.PerMinute(2).By(key(personKey{})).Named("person")
	ctx := context.WithValue(inOrg(t.Context(), "same"), personKey{}, "same")
	for i, limits := range []core.Limits{{a, b}, {b, a}} {
		l := newLimiter(t, limits, core.WithStore(s), core.WithName("kinds"))
		d, err := l.Allow(ctx, "k")
		if err != nil || d.Allowed != (i == 0) || i == 1 && strings.Join(d.Violated, "") != "org" {
			t.Errorf("%d: %v, %v", i, d, err)
		}
	}
}

func TestMistakesWithKeysOfLimits(t *testing.T) {
	org := core.By(func(*http.Request) (string, error) { return "acme", nil })
	for _, c := range []struct {
		desc   string
		policy core.Policy
		opts   []core.Option
		want   []string
	}{
		{"no key", core.PerMinute(1).By(core.Key{}), nil, []string{"By(no key)", "core.Global()"}},
		{"a wrong key", core.Limits{core.PerMinute(1), core.PerHour(1).By(core.ByHeader("a b", nil))}, nil,
			[]string{`ByHeader("a b")`, "core.Unverified"}},
		{"a store of one log", core.Limits{core.PerMinute(1), core.PerMinute(1).By(org)},
			[]core.Option{core.WithStore(oneLog{core.NewMemoryStore()})},
			[]string{"limits(2)", "one log at a time"}},
	} {
		_, err := core.New(c.policy, core.ByIP(), c.opts...)
		if err == nil {
			t.Errorf("%s: no error", c.desc)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q in it", c.desc, err, want)
			}
		}
	}
	// A key for another framework is told when an adapter binds the limiter.
	l, err := core.New(core.Limits{core.PerMinute(1).By(org)}, core.ByIP())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := core.Bind[*int](l, func() {}, func() {}); err == nil || !strings.Contains(err.Error(), "By(func(") {
		t.Errorf("bound for another framework: %v", err)
	}
	// Without a request, such a key is an error that names it.
	if d, err := l.Allow(t.Context(), "192.0.2.1"); !errors.Is(err, core.ErrNoKey) || d.Allowed ||
		!strings.Contains(err.Error(), "the limit 1/minute, made by By: ") {
		t.Errorf("%v, %v", d, err)
	}
}

// oneLog is a store that decides over one log at a time.
type oneLog struct{ core.Store }

func (oneLog) Validate(plans ...*store.Limit) error { return store.OneLog(plans) }

// Requests at once of many users in a few organisations: no quota is exceeded, and none of an organisation's units is
// lost to requests that were denied.
func TestSeveralLogsConcurrently(t *testing.T) {
	l := newLimiter(t, perUserAndOrg(20, 150))
	var admitted [2]atomic.Int64
	var wg sync.WaitGroup
	for n := range 64 {
		wg.Go(func() {
			ctx := inOrg(t.Context(), fmt.Sprint("org", n%2))
			for range 30 {
				d, err := l.Allow(ctx, fmt.Sprint("user", n%16))
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					admitted[n%2].Add(1)
				}
			}
		})
	}
	wg.Wait()
	for i := range admitted {
		if got := admitted[i].Load(); got != 150 {
			t.Errorf("organisation %d: %d admitted, want 150", i, got)
		}
	}
}

// What one user gives back wakes another one who waits for their organisation's limit.
func TestUndoWakesOtherKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, core.Limits{core.PerHour(5), core.PerHour(1).By(core.ByValue(orgKey{}))})
		ctx := inOrg(t.Context(), "acme")
		first, err := l.Allow(ctx, "ann")
		if err != nil || !first.Allowed {
			t.Fatalf("%v, %v", first, err)
		}
		start := time.Now()
		go func() {
			time.Sleep(time.Minute)
			if err := first.Undo(ctx); err != nil {
				t.Error(err)
			}
		}()
		if d, err := l.Wait(ctx, "bob"); err != nil || !d.Allowed || time.Since(start) != time.Minute {
			t.Errorf("%v, %v after %v, want a minute", d, err, time.Since(start))
		}
	})
}

// A handler may overwrite the memory that the keys were read from: a refund still finds all logs.
func TestKeysOfLimitsInReusedMemory(t *testing.T) {
	user, org := []byte("ann"), []byte("acme")
	in := func(memory []byte) core.Key {
		return core.By(func(context.Context) (string, error) { return unsafeString(memory), nil })
	}
	l := newLimiterBy(t, core.Limits{core.PerHour(1), core.PerDay(1).By(in(org))}, in(user),
		core.WithRefund(func(context.Context, int) bool { return true }))
	for range 3 {
		copy(user, "ann")
		copy(org, "acme")
		d, err := l.Check(from("192.0.2.1:1"))
		if err != nil || !d.Allowed {
			t.Fatalf("%v, %v: nothing was refunded", d, err)
		}
		d.Serve(func() int {
			copy(user, "zzz")
			copy(org, "zzzz")
			return 200
		})
	}
}

func newLimiterBy(t *testing.T, p core.Policy, k core.Key, opts ...core.Option) *core.Limiter {
	t.Helper()
	l, err := core.New(p, k, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A key's kind is not told apart from another by capitals alone, because names of logs have none.
func TestKeysWhoseKindsDifferInCapitals(t *testing.T) {
	same := core.KeyOf("byvalue", func(adapter.Request) (scope, text string, err error) { return "", "acme", nil })
	limits := core.Limits{core.PerHour(1).By(core.ByValue(orgKey{})), core.PerDay(1).By(same)}
	l := newLimiterBy(t, limits, core.Global())
	if d, err := l.Allow(inOrg(t.Context(), "acme"), "k"); err != nil || !d.Allowed {
		t.Errorf("%v, %v", d, err)
	}
}
