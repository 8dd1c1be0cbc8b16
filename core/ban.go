package core

import (
	"cmp"
	"context"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// WithBan bans a client after this many denials within a window. The first ban lasts for first, and each further one
// twice as long, up to 64 times first. A ban is forgotten 128 times first after it began. A request during a ban is
// denied (429) with Banned set and the problem type "abnormal-usage-detected". It is not counted, so trying does not
// prolong the ban. [Limiter.Reset] lifts it.
//
// Denials are counted exactly, in a log of their own, and bans are kept in another, so a request calls the store twice,
// and a denied one three times. [Limiter.Record] is not affected, and waiting in [Limiter.Wait] does not count as a
// denial.
func WithBan(denials int, within, first time.Duration) Option {
	return func(c *config) {
		c.once("WithBan")
		tries := Limit{Quota: denials, Window: within}
		reason := tries.fault()
		if denials < 1 || denials > MaxQuota {
			reason = "a ban takes 1 to " + strconv.Itoa(MaxQuota) + " denials"
		}
		most := (MaxWindow >> banSteps).Truncate(time.Microsecond)
		if reason == "" && (first < MinWindow || first > most || first%time.Microsecond != 0) {
			reason = "a first ban is " + MinWindow.String() + " to " + most.String() + " long, in whole microseconds"
		}
		if reason != "" {
			c.fault("WithBan", strconv.Itoa(denials)+", "+within.String()+", "+first.String(), reason)
			return
		}
		var ladder Limits
		for i := range banSteps {
			ladder = append(ladder, Limit{Quota: 1 << i, Window: first << i})
		}
		// The last limit never denies. Its window tells for how long bans are remembered.
		ladder = append(ladder, Limit{Quota: 1 << (2 * banSteps), Window: first << banSteps})
		c.ban = &ban{
			limit: tries, tries: newStorePlan(Limits{tries}, 0, 0, 0, false),
			ladder: newStorePlan(ladder, 0, 0, 0, false), first: first,
		}
		for step := range c.ban.begin {
			begin := slices.Clone(ladder)
			for i := range begin {
				begin[i].Quota += 1<<step - 1
			}
			c.ban.begin[step] = newStorePlan(begin, 0, 0, 0, false)
		}
	}
}

const banSteps = maxLimits - 1

// ban uses two more logs of the store, so that stores need no support for bans. In the log of bans, the n-th ban is an
// entry of 2^(n-1) units, and the limits form a ladder: 1 unit in first, 2 in twice first, 4 in four times first. So an
// entry fills the window of its own step and of the steps below it, and older entries together are too few to fill it.
type ban struct {
	limit  Limit // of denials
	tries  *store.Plan
	ladder *store.Plan
	begin  [banSteps]*store.Plan // the ladder for an entry of 2^n units: each admits that where the ladder admits 1
	first  time.Duration

	denials, bans *store.Namespace
}

// forPolicy returns a copy with namespaces for the limiter's policy. No policy can have their names, because of the
// colon.
func (b *ban) forPolicy(name string, secret []byte) *ban {
	if b == nil {
		return nil
	}
	named := *b
	named.denials = store.NewNamespace(name+":d", secret)
	named.bans = store.NewNamespace(name+":b", secret)
	return &named
}

// appendLimit appends the limit of denials, which the store must support too.
func (b *ban) appendLimit(limits Limits) Limits {
	if b == nil {
		return limits
	}
	return append(slices.Clip(limits), b.limit)
}

// decide denies during a ban, and otherwise charges; with try, a denial counts towards a ban.
func (b *ban) decide(ctx context.Context, d *Decision, mode store.Mode, try bool) error {
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
	if err := l.charge(ctx, d, mode); err != nil {
		return err
	}
	d.storeErr = cmp.Or(d.storeErr, lookErr)
	if d.Allowed || !try {
		return nil
	}
	return b.count(ctx, d, past)
}

// look denies d during a ban, and returns the units of past bans.
func (b *ban) look(ctx context.Context, d *Decision) (past int, err error) {
	var a store.Answer
	err = b.take(ctx, d, b.ladder, store.ModePeek, 1, &a)
	if err == nil && !a.Allowed {
		b.deny(d, a.Retry)
	}
	return a.State[banSteps].Used, err
}

// count counts a denial, and begins a ban if their number is reached.
func (b *ban) count(ctx context.Context, d *Decision, past int) error {
	key := store.Key{Namespace: b.denials, Identity: d.key.Identity}
	var a store.Answer
	err := d.limiter.take(ctx, &key, &store.Take{Plan: b.tries, Cost: 1}, d, &a)
	if err != nil || !a.Allowed || a.State[0].Used+1 < b.limit.Quota {
		return err
	}
	step := min(bits.Len(uint(past+1)), banSteps) - 1
	var begun store.Answer
	if err = b.take(ctx, d, b.begin[step], store.ModeCharge, 1<<step, &begun); err != nil {
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
	ctx context.Context, d *Decision, ladder *store.Plan, mode store.Mode, cost int, a *store.Answer,
) error {
	key := store.Key{Namespace: b.bans, Identity: d.key.Identity}
	return d.limiter.take(ctx, &key, &store.Take{Plan: ladder, Cost: cost, Mode: mode}, d, a)
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
