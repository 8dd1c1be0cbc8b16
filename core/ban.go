package core

import (
	"cmp"
	"context"
	"math/bits"
	"slices"
	"strconv"
	"time"

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
	return onceUnlessRules("WithBan", "a deny list, or a limit over a longer window", func(c *config) {
		b, wrong := newBan(denials, within, first)
		if b == nil {
			c.fault("WithBan", strconv.Itoa(denials)+", "+within.String()+", "+first.String(),
				wrong.problem, wrong.remedy)
			return
		}
		c.ban = b
	})
}

// checkBan reports a ban that no denial of these limits counts towards.
func (c *config) checkBan(limits []plan.Limit, own Key) {
	counts := func(l plan.Limit) bool { return l.IsOwn(own.keySpec) }
	if c.ban != nil && len(limits) > 0 && !slices.ContainsFunc(limits, counts) {
		c.fault("WithBan", textOf(limits), "bans need a limit that has a window and the limiter's key",
			"add one, or leave the option out")
	}
}

// decide denies during a ban, and otherwise charges; with try, a denial counts towards a ban.
func (b *ban) decide(ctx context.Context, d *Decision, try bool) error {
	l := d.limiter
	if l.guard != nil {
		ctx = l.guard.Within(ctx, time.Now()) // one deadline for all calls of the store
	}
	past, err := b.look(ctx, d)
	if err != nil || d.Banned {
		return err
	}
	lookErr := d.storeErr // of look, which tells nothing about the charge
	d.storeErr = nil
	if err := l.charge(ctx, d); err != nil {
		return err
	}
	d.storeErr = cmp.Or(d.storeErr, lookErr)
	if d.Allowed || !try || !d.deniedByOwn() {
		return nil
	}
	return b.count(ctx, d, past)
}

// deniedByOwn reports whether a window of the limiter's key has denied.
func (d *Decision) deniedByOwn() bool {
	for i := range d.plan.Limits {
		if d.denies(i) && d.plan.Limits[i].IsOwn(d.limiter.key.keySpec) {
			return true
		}
	}
	return false
}

// look denies d during a ban, and returns the units of past bans.
func (b *ban) look(ctx context.Context, d *Decision) (past int, err error) {
	a, err := b.take(ctx, d, b.ladder, store.ModePeek, 1)
	if err == nil && !a.Allowed {
		b.deny(d, a.Retry)
	}
	return a.State[banSteps].Used, err
}

// count counts a denial, and begins a ban if their number is reached.
func (b *ban) count(ctx context.Context, d *Decision, past int) error {
	key := store.Key{Namespace: b.denials, Identity: d.take.Key.Identity}
	a, err := d.limiter.takeOne(ctx, store.Take{Key: key, Plan: b.tries, Cost: 1}, d)
	if err != nil || !a.Allowed || a.State[0].Used+1 < b.limit.Quota {
		return err
	}
	step := min(bits.Len(uint(past+1)), banSteps) - 1
	begun, err := b.take(ctx, d, b.begin[step], store.ModeCharge, 1<<step)
	if err != nil {
		return err
	}
	if begun.Allowed {
		b.deny(d, b.first<<step)
	} else { // another request has begun a ban since look
		b.deny(d, begun.Retry)
	}
	// In an outage, only the logs in this process count, and they have been reset.
	if err := d.limiter.reset(ctx, key); err != nil && !store.IsOutage(err) {
		return err
	}
	return nil
}

func (b *ban) take(
	ctx context.Context, d *Decision, ladder *store.Plan, mode store.Mode, cost int,
) (store.Answer, error) {
	key := store.Key{Namespace: b.bans, Identity: d.take.Key.Identity}
	return d.limiter.takeOne(ctx, store.Take{Key: key, Plan: ladder, Cost: cost, Mode: mode}, d)
}

func (b *ban) deny(d *Decision, wait time.Duration) {
	d.Allowed, d.Banned, d.Violated, d.Policy = false, true, []string{"ban"}, d.limiter.namespace.Policy()
	d.Remaining, d.RetryAfter, d.ResetAfter = 0, wait, wait
}

func (b *ban) lift(ctx context.Context, l *Limiter, id identity) error {
	for _, s := range [...]*store.Namespace{b.denials, b.bans} {
		if err := l.reset(ctx, store.Key{Namespace: s, Identity: id}); err != nil {
			return err
		}
	}
	return nil
}
