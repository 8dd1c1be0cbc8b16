package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/store"
)

// Ban is when clients are banned, for core.WithBan.
type Ban struct {
	Denials int           // of which the last begins a ban
	Within  time.Duration // these denials
	First   time.Duration // how long the first ban lasts; each further one lasts twice as long, up to 64 times First
}

// ban is a Ban in terms of logs, so that stores need no support for bans. All are of the own key.
//
//   - tries has the denials;
//   - lock is a token bucket of 64 units, of which one comes back in First. A ban of 2^n times First takes 2^n of them,
//     so the bucket is full again when it ends: until then a request for all 64 units is denied, and its Retry is the
//     ban's end;
//   - history has an entry for each ban, of as many units as all before it have, and of 1 if there is none: so it has
//     2^n units after n+1 bans.
type ban struct {
	Ban

	tries, lock, history *store.Limit
}

const (
	mostTimes = 64            // of the first ban
	forget    = 2 * mostTimes // times the first ban
)

// longestFirst is the longest first ban.
const longestFirst = limittext.MaxWindow / forget

func (e *Engine) newBan(b *Ban) (*ban, error) {
	value := fmt.Sprintf("%d, %v, %v", b.Denials, b.Within, b.First)
	var faults []error
	add := func(wrong bool, problem, remedy string) {
		if wrong {
			faults = append(faults, configError("WithBan", value, problem, remedy))
		}
	}
	add(b.Denials < 1 || b.Denials > store.MaxQuota, "the number of denials is out of range", limittext.RemedyQuota)
	for _, f := range (limittext.Limit{Quota: 1, Window: b.Within}).Faults() {
		add(true, f.Problem, f.Remedy)
	}
	add(b.First < limittext.MinWindow || b.First > longestFirst || b.First%time.Microsecond != 0,
		"the length of the first ban is out of range",
		fmt.Sprintf("choose %v to %v, in whole microseconds", limittext.MinWindow, longestFirst))
	if faults != nil {
		return nil, errors.Join(faults...)
	}
	first := b.First.String()
	made := &ban{
		Ban:   *b,
		tries: &store.Limit{Log: "tries-" + b.Within.String(), Quota: b.Denials, Window: b.Within},
		lock: &store.Limit{
			Log: "ban-" + first, Quota: mostTimes, Window: b.First, Refill: 1, Algorithm: store.TokenBucket,
		},
		history: &store.Limit{Log: "bans-" + first, Quota: mostTimes, Window: forget * b.First},
	}
	return made, cmp.Or(e.store.validate(made.tries), e.store.validate(made.lock, made.history))
}

// logs returns the limits of all logs of bans.
func (b *ban) logs() []*store.Limit { return []*store.Limit{b.tries, b.lock, b.history} }

// bans reports whether denials by the limit count towards a ban.
func (l *Limit) bans() bool { return l.key.Own && !l.InFlight }

// look asks whether an identity is banned: for how long, and what its history has.
func (e *Engine) look(ctx context.Context, key *store.Key, r *Result) (wait time.Duration, history int, err error) {
	takes := [2]store.Take{
		{Key: *key, Limit: e.ban.lock, Cost: mostTimes, Mode: store.ModePeek},
		{Key: *key, Limit: e.ban.history, Cost: 1, Mode: store.ModePeek},
	}
	var answers [2]store.Answer
	if err = e.takeBeside(ctx, takes[:], answers[:], r); !answers[0].Allowed {
		wait = answers[0].Retry
	}
	return wait, answers[1].Used, err
}

// takeBeside asks logs beside those of a decision. It notes if the store has not decided.
func (e *Engine) takeBeside(ctx context.Context, takes []store.Take, answers []store.Answer, r *Result) error {
	source, err := e.store.take(ctx, takes, answers)
	if source == event.Local {
		r.Degraded, r.Err, err = true, err, nil
	}
	return err
}

// chargeUnlessBanned denies during a ban, and otherwise charges.
func (e *Engine) chargeUnlessBanned(ctx context.Context, a *Ask, r *Result) error {
	own := r.ownKey()
	if own == nil { // no limit of the request has the own key
		return e.ask(ctx, a, r)
	}
	ctx, cancel := e.store.Within(ctx)
	defer cancel()
	wait, history, err := e.look(ctx, own, r)
	if err != nil {
		return err
	}
	if wait > 0 {
		r.refuse(ByBan, wait)
		return nil
	}
	if err = e.ask(ctx, a, r); err != nil || r.Allowed || a.Waits || a.Mode == store.ModePeek {
		return err
	}
	if counts, err := e.countsTowardsBan(ctx, r); !counts || err != nil {
		return err
	}
	if wait, err = e.countDenial(ctx, own, history, r); wait > 0 {
		r.refuse(ByBan, wait)
	}
	return err
}

// ownKey returns the own key of a request, or nil if no limit about it has one.
func (r *Result) ownKey() *store.Key {
	all, _ := r.all()
	if i := r.find(func(i int) bool { return r.Set.Limits[i].key.Own }); i >= 0 {
		return &all[i].Key
	}
	return nil
}

// countsTowardsBan reports whether a limit that has a window and the own key has denied. A denial that is remembered
// tells one log only, which may be another one: then these limits are asked.
func (e *Engine) countsTowardsBan(ctx context.Context, r *Result) (bool, error) {
	var unknown []store.Take
	for i := range r.Set.Limits {
		switch t, a := r.of(i); {
		case t == nil || !r.Set.Limits[i].bans():
		case !a.Known:
			peek := *t
			peek.Mode, peek.ID = store.ModePeek, 0
			unknown = append(unknown, peek)
		case !a.Allowed:
			return true, nil
		}
	}
	if unknown == nil {
		return false, nil
	}
	told := make([]store.Answer, len(unknown))
	err := e.takeBeside(ctx, unknown, told, r)
	for i := range told {
		if told[i].Known && !told[i].Allowed {
			return true, err
		}
	}
	return false, err
}

// countDenial counts a denial of a client whose history has so many units. If it is the last of those that lead to a
// ban, it begins one, and returns how long that lasts.
func (e *Engine) countDenial(
	ctx context.Context, key *store.Key, history int, r *Result,
) (wait time.Duration, err error) {
	tried, answer := [1]store.Take{{Key: *key, Limit: e.ban.tries, Cost: 1}}, [1]store.Answer{}
	err = e.takeBeside(ctx, tried[:], answer[:], r)
	if a := &answer[0]; err != nil || !a.Known || !a.Allowed || a.Used+1 < e.ban.Denials {
		return 0, err
	}
	units := min(max(1, 2*history), mostTimes)
	entry := max(1, units/2)
	once := *e.ban.history // of two requests that begin this ban, one is admitted
	once.Quota = history + entry
	takes := [2]store.Take{
		{Key: *key, Limit: e.ban.lock, Cost: units}, {Key: *key, Limit: &once, Cost: entry},
	}
	var answers [2]store.Answer
	if err = e.takeBeside(ctx, takes[:], answers[:], r); err != nil {
		return 0, err
	}
	wait = time.Duration(units) * e.ban.First
	if !answers[0].Allowed || !answers[1].Allowed {
		if wait, _, err = e.look(ctx, key, r); err != nil {
			return 0, err
		}
	}
	// In an outage, only the logs in this process count, and they have been reset.
	if err = e.store.Reset(ctx, *key, []*store.Limit{e.ban.tries}); store.IsOutage(err) {
		err = nil
	}
	return wait, err
}
