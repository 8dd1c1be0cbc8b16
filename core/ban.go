package core

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sashlimit/sash/core/internal/ban"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/store"
)

// WithBan bans a client after this many denials within a window. The first ban lasts for first, and each further one
// twice as long, up to 64 times first. A ban is forgotten 128 times first after it began. A request during a ban is
// denied (429) with Banned set and the problem type "abnormal-usage-detected". It is not counted, so trying does not
// prolong the ban. [Limiter.Reset] lifts it.
//
// A denial counts if a limit that has a window and the limiter's key has denied, alone or with others. Denials by
// limits with another key ([Limit.By]) do not count, since other clients may have used those up, and neither do denials
// by [InFlight]. If no limit counts, [New] returns an error. All clients that share the limiter's key are banned
// together, so do not ban requests by [Global].
//
// Denials are counted exactly, in a log of their own, and bans are kept in another, so a request calls the store twice,
// and a denied one three times. [Limiter.Record] is not affected, and waiting in [Limiter.Wait] does not count as a
// denial.
func WithBan(denials int, within, first time.Duration) Option {
	g := given{name: "WithBan", inRules: "a deny list, or a limit over a longer window"}
	return g.option(func(c *config) {
		value := fmt.Sprintf("%d, %v, %v", denials, within, first)
		before := len(c.faults)
		c.faults.add(denials < 1 || denials > MaxQuota, "WithBan", value, "the number of denials is out of range",
			limittext.RemedyQuota)
		tries := Limit{Quota: 1, Window: within}
		for _, f := range tries.text().Faults() {
			c.fault("WithBan", value, f.Problem, f.Remedy)
		}
		longest := ban.Longest(MaxWindow)
		c.faults.add(first < MinWindow || first > longest || first%time.Microsecond != 0, "WithBan", value,
			"the length of the first ban is out of range",
			fmt.Sprintf("choose %v to %v, in whole microseconds", MinWindow, longest))
		if len(c.faults) == before {
			tries.Quota = denials
			c.ban = ban.New(tries.compiled(), first)
		}
	})
}

// checkBan reports a ban that no denial of these limits counts towards.
func (c *config) checkBan(limits []plan.Limit, own *keys.Spec) {
	isOwn := func(l plan.Limit) bool { return l.IsOwn(own) }
	c.faults.add(c.ban != nil && len(limits) > 0 && !slices.ContainsFunc(limits, isOwn), "WithBan", textOf(limits),
		"bans need a limit that has a window and the limiter's key", "add one, or leave the option out")
}

// decideWithBan denies during a ban, and otherwise charges; with try, a denial counts towards a ban.
func (l *Limiter) decideWithBan(ctx context.Context, d *Decision, try bool) error {
	if l.guard != nil {
		ctx = l.guard.Within(ctx, time.Now()) // one deadline for all calls of the store
	}
	logs := ban.Logs{
		Take:  func(ctx context.Context, t store.Take) (store.Answer, error) { return l.takeOne(ctx, t, d) },
		Reset: l.reset,
	}
	look, err := l.ban.Look(ctx, logs, d.q.Take.Key.Identity)
	if err != nil {
		return err
	}
	if !look.Allowed {
		d.Banned = true
		d.refuse("ban", look.Retry)
		return nil
	}
	lookErr := d.storeErr // which tells nothing about the charge
	d.storeErr = nil
	if err := l.charge(ctx, d); err != nil {
		return err
	}
	d.storeErr = cmp.Or(d.storeErr, lookErr)
	own := func(i int) bool { return d.q.Denies(i) && d.q.Plan.Limits[i].IsOwn(l.key) }
	if d.Allowed || !try || d.q.Find(own) < 0 { // no window of the limiter's key has denied
		return nil
	}
	wait, banned, err := l.ban.Count(ctx, logs, d.q.Take.Key.Identity, look)
	if banned {
		d.Banned = true
		d.refuse("ban", wait)
	}
	return err
}

// liftBan ends a ban, if the limiter bans.
func (l *Limiter) liftBan(ctx context.Context, id identity) error {
	if l.ban == nil {
		return nil
	}
	return l.ban.Lift(ctx, ban.Logs{Reset: l.reset}, id)
}
