// Package ban bans clients that were denied often. It keeps their denials and their bans in two more logs of a store,
// so that stores need no support for bans.
package ban

import (
	"context"
	"math/bits"
	"slices"
	"time"

	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/store"
)

const steps = store.MaxLimits - 1

// Longest returns the longest first ban, so that bans are forgotten within a window of that length.
func Longest(window time.Duration) time.Duration { return (window >> steps).Truncate(time.Microsecond) }

// Rule is after how many denials a client is banned, and for how long. In the log of bans, the n-th ban is an entry of
// 2^(n-1) units, and the limits form a ladder: 1 unit in first, 2 in twice first, 4 in four times first. So an entry
// fills the window of its own step and of the steps below it, and older entries together are too few to fill it.
type Rule struct {
	denials int                // of which the last begins a ban
	Tries   *store.Plan        // of the log of denials; a store must support both plans
	Ladder  *store.Plan        // of the log of bans
	begin   [steps]*store.Plan // the ladder for an entry of 2^n units: each admits that where the ladder admits 1
	first   time.Duration

	triesIn, bansIn *store.Namespace
}

// New returns a rule for denials within a window, which the limit has.
func New(denials plan.Limit, first time.Duration) *Rule {
	ladder := make([]plan.Limit, 0, steps+1)
	for i := range steps {
		ladder = append(ladder, plan.Limit{Quota: 1 << i, Window: first << i})
	}
	// The last limit never denies. Its window tells for how long bans are remembered.
	ladder = append(ladder, plan.Limit{Quota: 1 << (2 * steps), Window: first << steps})
	r := &Rule{denials: denials.Quota, Tries: plan.Stored(denials), Ladder: plan.Stored(ladder...), first: first}
	for step := range r.begin {
		begin := slices.Clone(ladder)
		for i := range begin {
			begin[i].Quota += 1<<step - 1
		}
		r.begin[step] = plan.Stored(begin...)
	}
	return r
}

// ForPolicy returns a copy with namespaces for a policy. No policy can have their names, because of the colon.
func (r *Rule) ForPolicy(name string, secret []byte) *Rule {
	if r == nil {
		return nil
	}
	named := *r
	named.triesIn = store.NewNamespace(name+":d", secret)
	named.bansIn = store.NewNamespace(name+":b", secret)
	return &named
}

// Logs are the logs of a store.
type Logs struct {
	Take  func(context.Context, store.Take) (store.Answer, error)
	Reset func(context.Context, store.Key) error
}

// Look returns an answer that is a denial during a ban, for as long as its Retry.
func (r *Rule) Look(ctx context.Context, logs Logs, id store.Identity) (store.Answer, error) {
	return logs.Take(ctx, store.Take{Key: r.bansOf(id), Plan: r.Ladder, Cost: 1, Mode: store.ModePeek})
}

// Count counts a denial of a client about which Look has returned an answer. If their number is reached it begins a
// ban, and returns how long that is.
func (r *Rule) Count(
	ctx context.Context, logs Logs, id store.Identity, look store.Answer,
) (wait time.Duration, banned bool, err error) {
	tries := store.Key{Namespace: r.triesIn, Identity: id}
	a, err := logs.Take(ctx, store.Take{Key: tries, Plan: r.Tries, Cost: 1})
	if err != nil || !a.Allowed || a.State[0].Used+1 < r.denials {
		return 0, false, err
	}
	past := look.State[steps].Used
	step := min(bits.Len(uint(past+1)), steps) - 1
	a, err = logs.Take(ctx, store.Take{Key: r.bansOf(id), Plan: r.begin[step], Cost: 1 << step})
	if err != nil {
		return 0, false, err
	}
	if wait = r.first << step; !a.Allowed { // another request has begun a ban since Look
		wait = a.Retry
	}
	// In an outage, only the logs in this process count, and they have been reset.
	if err = logs.Reset(ctx, tries); store.IsOutage(err) {
		err = nil
	}
	return wait, true, err
}

// Lift ends a ban, and deletes the denials that were counted.
func (r *Rule) Lift(ctx context.Context, logs Logs, id store.Identity) error {
	if err := logs.Reset(ctx, store.Key{Namespace: r.triesIn, Identity: id}); err != nil {
		return err
	}
	return logs.Reset(ctx, r.bansOf(id))
}

func (r *Rule) bansOf(id store.Identity) store.Key {
	return store.Key{Namespace: r.bansIn, Identity: id}
}
