package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/store"
)

// tries asks a limiter as one client, and says what is wrong with the answer.
type tries struct {
	*testing.T

	l   *core.Limiter
	key string
}

func (t tries) allow() core.Decision {
	t.Helper()
	d, err := t.l.Allow(t.Context(), t.key)
	must(t, err)
	return d
}

func (t tries) wrong(d core.Decision, want string) {
	t.Helper()
	now := time.Now().Format("15:04:05.000000")
	t.Errorf("%s, at %s: allowed %v, banned %v, wait %v, reset %v, %d left, violated %v; want %s",
		t.key, now, d.Allowed, d.Banned, d.RetryAfter, d.ResetAfter, d.Remaining, d.Violated, want)
}

func (t tries) passes(n int) {
	t.Helper()
	for range n {
		if d := t.allow(); !d.Allowed || d.Banned {
			t.wrong(d, "a pass")
		}
	}
}

func (t tries) denied() {
	t.Helper()
	if d := t.allow(); d.Allowed || d.Banned {
		t.wrong(d, "a denial")
	}
}

func (t tries) banned(wait time.Duration) {
	t.Helper()
	t.isBan(t.allow(), wait)
}

func (t tries) isBan(d core.Decision, wait time.Duration) {
	t.Helper()
	if d.Allowed || !d.Banned || d.RetryAfter != wait || d.ResetAfter != wait || d.Remaining != 0 ||
		len(d.Violated) != 1 || d.Violated[0] != "ban" {
		t.wrong(d, "a ban of "+wait.String())
	}
}

// ban has the client banned now, for so long: it uses up what is left of the quota, and is denied twice.
func (t tries) ban(wait time.Duration) {
	t.Helper()
	for range 4 {
		if d := t.allow(); !d.Allowed {
			if d.Banned {
				t.wrong(d, "no ban yet")
			}
			break
		}
	}
	t.banned(wait)
}

// banning returns a limiter of 3 in 10 seconds that bans for 30 seconds after 2 denials within a minute.
func banning(t *testing.T, opts ...core.Option) tries {
	t.Helper()
	opts = append([]core.Option{core.WithBan(2, time.Minute, 30*time.Second)}, opts...)
	return tries{t, newLimiter(t, core.Limit{Quota: 3, Window: 10 * time.Second}, opts...), "ann"}
}

// A denial counts for exactly as long as the window of denials lasts.
func TestBanCountsDenialsExactly(t *testing.T) {
	const s, m = time.Second, time.Minute
	for _, c := range []struct {
		at   []time.Duration // of denials
		bans bool            // with the last of them
	}{
		{[]time.Duration{0, 0}, false},
		{[]time.Duration{0, 0, 0}, true},
		{[]time.Duration{0, s, m - 1}, true},
		{[]time.Duration{0, s, m}, false},
		{[]time.Duration{0, s, m, m + s - 1}, true},
		{[]time.Duration{0, s, m, m + s}, false},
		{[]time.Duration{0, 30 * s, 60 * s, 90 * s, 120 * s, 150 * s}, false},
	} {
		inBubble(t, fmt.Sprint(c.at), func(t *testing.T) {
			ann := tries{t, newLimiter(t, core.PerHour(1), core.WithBan(3, m, s)), "ann"}
			ann.passes(1)
			began := time.Now()
			for i, at := range c.at {
				time.Sleep(at - time.Since(began))
				if c.bans && i == len(c.at)-1 {
					ann.banned(s)
				} else {
					ann.denied()
				}
			}
		})
	}
}

// A reset lifts the ban of its key alone, and forgets denials.
func TestResetLiftsBan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann := banning(t)
		bob := tries{t, ann.l, "bob"}
		ann.ban(30 * time.Second)
		bob.ban(30 * time.Second)
		for range 2 {
			must(t, ann.l.Reset(t.Context(), "ann"))
			ann.passes(3)
			ann.denied()
		}
		ann.banned(30 * time.Second)
		bob.banned(30 * time.Second)
	})
}

// Peek tells of a ban alone, for as long as it lasts.
func TestBanPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann := banning(t)
		peek := func() core.Decision {
			t.Helper()
			d, err := ann.l.Peek(t.Context(), "ann")
			must(t, err)
			return d
		}
		ann.passes(3)
		ann.denied()
		began := ann.allow()
		for _, d := range []core.Decision{began, peek()} {
			if ann.isBan(d, 30*time.Second); len(d.Limits()) > 0 {
				t.Errorf("limits of a ban, which no limit decides about: %v", d.Limits())
			}
		}
		time.Sleep(30*time.Second - time.Microsecond)
		ann.isBan(peek(), time.Microsecond)
		time.Sleep(time.Microsecond)
		if d := peek(); !d.Allowed || d.Banned || d.Remaining != 3 {
			ann.wrong(d, "all of the quota")
		}
	})
}

// A request that can never pass is a denial, too. During a ban Record records, and Wait waits for its end.
func TestBanElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen core.Event
		ann := banning(t, core.WithObserver(func(_ context.Context, e core.Event) { seen = e }))
		ann.passes(3)
		ann.denied()
		d, err := ann.l.AllowN(t.Context(), "ann", 4) // the ban is told alone
		noError(t, err)
		ann.isBan(d, 30*time.Second)
		ann.isBan(seen.Decision, 30*time.Second)
		if seen.Key != "ann" || seen.Err != nil {
			t.Errorf("observed %+v", seen)
		}
		if d, err := ann.l.Record(t.Context(), "ann", 1); err != nil || !d.Allowed || d.Banned {
			t.Errorf("%+v, %v", d, err)
		}
		if err := d.Err(); err == nil || err.Error() != "sash: limited by ban: try again in 30s" {
			t.Error(err)
		}
		p := d.Problem()
		if p.Status != 429 || !strings.HasSuffix(p.Type, "#abnormal-usage-detected") ||
			p.Violated != nil || p.Detail != "Try again in 30 seconds." {
			t.Errorf("%+v", p)
		}
		noError(t, d.Undo(t.Context())) // it has taken nothing
		ann.banned(30 * time.Second)
		began := time.Now()
		if d, err := ann.l.Wait(t.Context(), "ann"); err != nil || !d.Allowed || time.Since(began) != 30*time.Second {
			t.Errorf("%+v, %v after %v", d, err, time.Since(began))
		}
	})
}

// What others have brought about bans nobody: one attacker filled the common limit, and whoever retried was banned.
func TestBanForOwnDenialsOnly(t *testing.T) {
	const m, h = time.Minute, time.Hour
	all, own := core.Global(), core.ByValue(personKey{})
	wide := core.PerHour(1000)
	for _, c := range []struct {
		desc   string
		limits core.Limits
		opts   []core.Option
		bans   bool
	}{
		{"everybody's window", core.Limits{wide, core.PerHour(3).By(all)}, nil, false},
		{"everybody's numbers", core.Limits{wide, core.PerHour(3).By(all).With(core.FixedWindow)}, nil, false},
		{"everybody's window, denials counted", core.Limits{wide, core.PerHour(3).By(all)},
			[]core.Option{core.WithCountDenied()}, false},
		{"everybody at the same time", core.Limits{wide, core.InFlight(3).By(all)}, nil, false},
		{"at the same time", core.Limits{wide, core.InFlight(3)}, nil, false},
		{"a shadow", core.Limits{wide}, []core.Option{core.WithShadow(core.PerHour(3))}, false},
		{"the own window", core.Limits{core.PerHour(3), wide.By(all)}, nil, true},
		{"the own window, by its key", core.Limits{core.PerHour(3).By(own), wide.By(all)}, nil, true},
		{"the own window alone, by its key", core.Limits{core.PerHour(3).By(own)}, nil, true},
		{"the own numbers", core.Limits{core.PerHour(3).With(core.FixedWindow), wide.By(all)}, nil, true},
		{"the own window, with a shadow", core.Limits{core.PerHour(3), wide.By(all)},
			[]core.Option{core.WithShadow(core.PerHour(1))}, true},
		{"both", core.Limits{core.PerHour(3).By(all), core.PerDay(3)}, nil, true},
	} {
		down := new(coretest.FakeStore)
		down.Fail(errDown)
		for name, s := range map[string]core.Store{
			"memory": core.NewMemoryStore(), "guarded": struct{ store.Full }{core.NewMemoryStore()}, "outage": down,
		} {
			inBubble(t, c.desc+"/"+name, func(t *testing.T) {
				l := newLimiterBy(t, c.limits, own, append(c.opts, core.WithStore(s), core.WithBan(2, m, h))...)
				defer l.Close()
				attacker, honest := tries{t, l, "mallory"}, tries{t, l, "ann"}
				attacker.passes(3)
				for i := range 3 {
					if d := attacker.allow(); d.Banned != (c.bans && i > 0) {
						attacker.wrong(d, "a ban only for denials of her own window")
					}
					if c.bans {
						continue
					}
					if d := honest.allow(); d.Banned {
						honest.wrong(d, "no ban")
					}
					if d, err := l.AllowAtMost(t.Context(), honest.key, 9); err != nil || d.Banned {
						t.Errorf("%+v, %v; want no ban", d, err)
					}
				}
			})
		}
	}
}

// If the store fails at any step, no request passes. A banned client's request asks the store only once.
func TestBanStoreFails(t *testing.T) {
	left, asked := 0, 0
	logs := &double{Full: core.NewMemoryStore(), take: func(_ []store.Take, ask func() error) error {
		asked++
		if left--; left < 0 {
			return errLookup
		}
		return ask()
	}}
	ann := banning(t, core.WithStore(logs), core.WithDenyCache(0), core.WithTimeout(time.Minute),
		core.WithFailure(core.FailClosed))
	ask := func(answers int) {
		t.Helper()
		left = answers
		if d, err := ann.l.Allow(t.Context(), "ann"); !errors.As(err, new(*core.StoreError)) || d.Allowed {
			t.Errorf("after %d answers: %+v, %v", answers, d, err)
		}
		left = 1000
	}
	ask(0)
	ask(1)
	ann.passes(3)
	ask(2) // it cannot count the denial
	ann.denied()
	ann.allow()
	asked = 0
	if d := ann.allow(); !d.Banned || asked != 1 {
		t.Errorf("%+v after %d questions", d, asked)
	}
}
