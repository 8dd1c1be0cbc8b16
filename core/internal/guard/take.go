package guard

import (
	"context"
	"errors"
	"slices"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

// Take decides a request, as [store.Store] describes it, by the deny cache, by the store, or, if that does not answer,
// by the failure policy: then it returns event.Local and the store's error. If it returns another source and an error,
// there is no decision. Answers are zero before.
//
// It sets the ID of the takes. Answers that are not Known have no numbers.
func (g *Guard) Take(ctx context.Context, takes []store.Take, answers []store.Answer) (event.Source, error) {
	if g.denials.Lookup(takes, answers) {
		return event.Cache, nil
	}
	return g.decide(ctx, takes, answers)
}

// decide decides a request that the deny cache does not answer.
func (g *Guard) decide(ctx context.Context, takes []store.Take, answers []store.Answer) (event.Source, error) {
	setID(takes, newID())
	c, cancel := g.within(ctx)
	defer cancel()
	asked, err := g.ask(c, takes, answers)
	if err == nil {
		g.denials.Note(takes, answers, c.Began())
		return event.Store, nil
	}
	return g.withoutStore(takes, answers, asked, err)
}

// withoutStore decides a request by the failure policy. Asked reports whether the store may have got the takes.
func (g *Guard) withoutStore(
	takes []store.Take, answers []store.Answer, asked bool, err error,
) (event.Source, error) {
	if errors.As(err, new(*store.ConfigError)) {
		return event.Store, err
	}
	if asked {
		g.fly(err, takes)
	}
	switch g.config.Failure {
	case Local:
		g.decideHere(takes, answers, asked)
	case Open:
		for i := range answers {
			answers[i] = store.Answer{Allowed: true}
			if takes[i].Mode == store.ModeAtMost {
				answers[i].Granted = takes[i].Cost
			}
			if asked && takes[i].Limit.Permits { // which nobody holds
				g.disown(takes[i : i+1])
			}
		}
	case Closed:
		if asked {
			g.disown(takes)
		}
		return event.Store, err
	}
	return event.Local, err
}

// ask asks the store, unless it is known not to answer. Asked reports whether it may have got the takes.
func (g *Guard) ask(ctx context.Context, takes []store.Take, answers []store.Answer) (asked bool, err error) {
	if g.isOpen() {
		return false, g.lastError.Load()
	}
	before, waited := g.breaker.counted.Load(), false
	if g.config.Failure == Local && g.record.backlogs.Load() > 0 && g.unanswered.Load() > 0 {
		waited, err = g.replayFirst(ctx, takes)
	}
	if asked = err == nil; asked {
		err = g.store.take(ctx, takes, answers)
	}
	if asked || store.IsOutage(err) {
		g.report(before, err)
	}
	if asked && err != nil {
		if !waited { // or it may not have had the time
			g.unanswered.Add(1)
		}
		g.record.sent.Store(int64(g.record.now()))
		asked = len(takes) > 1 || store.IsOutage(err) // otherwise the only log did not record the take
	}
	return asked, g.noteError(err, &takes[0].Key, takes[0].Limit)
}

// decideHere decides a request in this process, unless the store has denied it before, for as long as that has said. If
// the store may have got it, what it has not to count is removed later.
func (g *Guard) decideHere(takes []store.Take, answers []store.Answer, asked bool) {
	mode := takes[0].Mode
	if asked && mode == store.ModeAtMost { // it may have granted another number
		g.disown(takes)
		setID(takes, newID())
		asked = false
	}
	if mode == store.ModePeek { // which is about each of the logs
		g.record.Take(takes, answers)
		g.denials.InOutage(takes, answers)
		return
	}
	at, deniedBefore := g.record.now(), g.denials.InOutage(takes, answers)
	if !deniedBefore {
		g.record.Take(takes, answers)
	}
	admitted := isAdmitted(takes, answers)
	for i := range takes {
		t, a := &takes[i], &answers[i]
		counted := admitted || mode == store.ModeChargeDenied && a.Known && !a.Allowed && !t.Limit.NeverFits(t.Cost)
		switch {
		case counted && isMerged(t.Limit):
			units := t.Cost
			if mode == store.ModeAtMost {
				units = a.Granted
			}
			if deniedBefore {
				g.record.Take(takes[i:i+1], make([]store.Answer, 1))
			}
			g.record.decided(&t.Key, t.Limit, units, at)
			g.denials.ForgetForNow(&t.Key, t.Limit)
		case !counted && asked:
			g.disown(takes[i : i+1])
		}
	}
}

// isAdmitted reports whether a request is admitted. ModeRecord records units whether there are permits or not.
func isAdmitted(takes []store.Take, answers []store.Answer) bool {
	return takes[0].Mode == store.ModeRecord ||
		!slices.ContainsFunc(answers, func(a store.Answer) bool { return !a.Allowed })
}

// isMerged reports whether a log is replayed by merging it. Permits are renewed instead, and the other algorithms keep
// no entries: what they have counted in an outage stays in this process.
func isMerged(l *store.Limit) bool { return l.Algorithm == store.SlidingLog && !l.Permits }

func setID(takes []store.Take, id uint64) {
	for i := range takes {
		takes[i].ID = id
	}
}
