package guard

import (
	"context"
	"errors"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/deadline"
	"github.com/sashlimit/sash/core/internal/denycache"
	"github.com/sashlimit/sash/core/store"
)

// Take decides a request, as [store.Store] describes it, by the store or the deny cache, or, if the store does not
// answer, by the failure policy: then it returns event.Local and the store's error. If it returns another source and an
// error, there is no decision. It sets the ID of the takes, which is another one for slots that this process has
// admitted. An answer of the deny cache or of Open which allows a take of several has no numbers.
func (g *Guard) Take(ctx context.Context, takes []store.Take, answers []store.Answer) (from event.Source, err error) {
	if g.denials.Lookup(takes, answers) {
		return event.Cache, nil
	}
	return g.decide(ctx, time.Now(), &request{takes: takes, answers: answers})
}

// decide decides a request that the deny cache does not answer.
func (g *Guard) decide(ctx context.Context, now time.Time, r *request) (from event.Source, err error) {
	r.setID(newID())
	g.Begin()
	defer g.End()
	ctx = g.inTime(ctx, now)
	begun := now.Sub(g.start)
	var buf [store.MaxLimits]denycache.Version
	versions := buf[:len(r.takes)]
	g.denials.ReadVersions(r.takes, begun, versions)
	sent := unconfirmed
	if g.breaker.isBypassed() && g.record.entries.Load() == 0 {
		err = g.takeReported(ctx, pass{begun: begun, bypassed: true}, r)
	} else {
		r.booking = nil // which is made while the store is well only
		sent, err = g.takeGuarded(ctx, begun, r)
	}
	if err == nil {
		g.denials.Update(r.takes, r.answers, len(r.takes) == 1 || r.admitted(), versions)
		return event.Store, nil
	}
	err = g.noteError(err, r.takes...)
	if sent == unconfirmed && timedOut(err) {
		g.reconnect(&r.takes[0].Key)
	}
	if errors.As(err, new(*store.ConfigError)) {
		return event.Store, err
	}
	if sent == unconfirmed && !store.IsOutage(err) && len(r.takes) == 1 {
		sent = unsent // the store has answered that it did not record the take
	}
	if sent != unsent {
		g.giveBack(r)
	}
	switch g.failure {
	case Closed:
		return event.Store, err
	case Open:
		for i := range r.answers {
			r.answers[i] = store.Answer{Allowed: true}
		}
	case Local:
		g.takeLocal(r, sent)
	}
	return event.Local, err
}

// takeLocal decides a request in this process.
func (g *Guard) takeLocal(r *request, sent delivery) {
	clear(r.answers)
	for i := range r.takes {
		if t := &r.takes[i]; t.Plan.Slots {
			g.Slots.Merge(&t.Key, func(ids []uint64) { g.record.hold(t, ids) })
		}
	}
	var known [store.MaxLimits]bool
	g.denials.LookupInOutage(r.takes, r.answers, &known)
	g.record.take(r, &known, sent)
}

// takeReported asks the store and reports the outcome to the breaker.
func (g *Guard) takeReported(ctx context.Context, p pass, r *request) (err error) {
	err = errPanicked // unless ask returns
	defer func() { g.report(p, err) }()
	return g.ask(ctx, r)
}

// ask asks the store. If it fails, the answers are of no use. If the store may have answered, and this process could
// not run, it asks once more, unless the store has failed before. The error has a class of its own if a call has ended
// long after its deadline.
func (g *Guard) ask(ctx context.Context, r *request) error {
	err := g.store.take(ctx, r)
	if err == nil || !timedOut(err) {
		return err
	}
	c, ok := ctx.(deadline.Context)
	if !ok || !c.IsLate() && !c.HasStalled() || g.breaker.isFailing() {
		return err
	}
	if r.keepEntries() {
		c = g.Again(ctx, time.Now())
		successes := g.breaker.watch()
		if err = g.store.take(c, r); !timedOut(err) {
			return err
		}
		g.breaker.suspect(successes)
	}
	if c.IsLate() {
		return &store.StoreError{Err: err, Class: classProcess, Advice: adviseProcess}
	}
	return err
}

// timedOut reports whether a call has ended without an answer because of its deadline.
func timedOut(err error) bool {
	var e interface{ Timeout() bool }
	return errors.As(err, &e) && e.Timeout()
}

// lacks are the backlogs of a request's keys.
type lacks [store.MaxLimits]lack

// takeGuarded asks the store if the breaker admits it and the backlogs of the keys permit it.
func (g *Guard) takeGuarded(ctx context.Context, begun time.Duration, r *request) (sent delivery, err error) {
	state := g.breaker.state()
	if state == open {
		return unsent, g.lastError.Load()
	}
	var l lacks
	replay, first := false, state != closed || !r.keepEntries()
	if g.failure == Local && g.record.entries.Load() > 0 {
		for i := range r.takes {
			l[i] = g.record.lack(&r.takes[i])
			replay, first = replay || l[i].count > 0, first || l[i].long()
		}
	}
	if replay && first {
		if err = g.replayFirst(ctx, r, &l); err != nil {
			return unsent, err
		}
		replay = false
	}
	p, ok := g.breaker.admit()
	if !ok {
		return unsent, g.lastError.Load()
	}
	p.begun = begun
	if p.probe && !g.isClosed() {
		return unconfirmed, g.probe(ctx, p, r)
	}
	if err = g.takeReported(ctx, p, r); err == nil && replay {
		return g.takeWithBacklogs(ctx, r, &l)
	}
	return unconfirmed, err
}

// replayFirst replays the backlogs of a request's keys before the store is asked. If the breaker is not closed, the
// first replay is its probe. It fails if a replay takes long or is another request's probe.
func (g *Guard) replayFirst(ctx context.Context, r *request, l *lacks) error {
	for i := range r.takes {
		if l[i].count == 0 {
			continue
		}
		switch run, started := g.startReplay(&r.takes[i].Key, awaited); {
		case run == nil: // nothing is left
		case l[i].long(), !started && g.breaker.state() != closed:
			return errReplaying
		case run.wait(ctx) != nil:
			return g.lastError.Load()
		}
	}
	return nil
}

// takeWithBacklogs completes a request whose answers do not take the backlogs of its keys into account. It starts the
// replays, since the store answers now. If the backlogs might change the decision, it asks again after the replays if
// there is time, and otherwise fails, so that this process decides. Thus the store decides again however slow it is.
func (g *Guard) takeWithBacklogs(ctx context.Context, r *request, l *lacks) (sent delivery, err error) {
	var runs [store.MaxLimits]*run
	for i := range r.takes {
		if l[i].count > 0 {
			runs[i], _ = g.startReplay(&r.takes[i].Key, awaited)
		}
	}
	mode := r.mode()
	recorded := mode != store.ModePeek && r.admitted()
	same := r.sameWith(l)
	// A denial that some logs have recorded and others have not cannot be repeated.
	if same && (recorded || len(r.takes) > 1 && mode == store.ModeChargeDenied) {
		return delivered, nil
	}
	for _, run := range runs {
		if run == nil || run.wait(ctx) == nil {
			continue
		}
		if same {
			return delivered, nil
		}
		return delivered, errReplaying
	}
	if recorded {
		for i := range r.takes {
			s := store.Settlement{Key: r.takes[i].Key, ID: r.takes[i].ID}
			if err := g.store.call(ctx, event.Settle, g.store.settling(s)); err != nil {
				return unconfirmed, err // it is unknown whether the store still has the take
			}
		}
		r.setID(newID())
	} else if mode == store.ModeChargeDenied { // the log has the denial
		ctx = deadline.Repeated(ctx)
	}
	return unconfirmed, g.ask(ctx, r)
}

// sameWith reports whether the decision would be the same with the backlogs in the logs, and adds the backlogs to
// answers that admit. Until a replay has ended, entries that the log has already count twice in such an answer.
func (r *request) sameWith(l *lacks) bool {
	if !r.admitted() {
		return true
	}
	for i := range r.takes {
		t, a := &r.takes[i], &r.answers[i]
		with := *a
		for n := range t.Plan.Limits {
			s, lacks := &with.State[n], &l[i].states[n]
			s.Used += lacks.Used
			if lacks.Reset > 0 && (s.Reset == 0 || lacks.Reset < s.Reset) {
				s.Reset = lacks.Reset
			}
		}
		t.Plan.Judge(&with, t.Cost, t.Mode)
		t.Plan.Grant(&with, a.Granted)                                          // 0 unless the mode is ModeUpTo
		if !with.Allowed || t.Mode == store.ModeUpTo && with.Granted < t.Cost { // there may be room for another number
			return false
		}
		*a = with
	}
	return true
}
