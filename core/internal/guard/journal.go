package guard

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/store"
)

// journal makes the decisions of this process during outages and records them for replay. Its logs decide. They keep
// every entry until it leaves its window, whether it has been replayed or not, so that a store which fails repeatedly
// does not grant a fresh quota each time. Its backlogs hold what is still to be replayed.
type journal struct {
	backlogs

	logs     *memory.Store
	replayed atomic.Uint64 // entries

	unconfirmedSlots sync.Map // IDs of takes of slots that were admitted here and that the store may have recorded too
}

func newJournal(keys int) *journal {
	return &journal{logs: memory.New(keys), backlogs: backlogs{most: 2 * int64(keys), start: time.Now()}}
}

// take decides a request in this process and records it for replay. The answers must be zero.
func (j *journal) take(r *request, sent delivery) {
	j.ask(r.takes, r.answers)
	admitted := r.admitted()
	for i := range r.takes {
		t, a := &r.takes[i], &r.answers[i]
		j.note(t, a, admitted || !a.Allowed && countsDenied(t), sent)
	}
}

// ask asks the logs of this process. They set IDs to 0 where they have recorded nothing.
func (j *journal) ask(takes []store.Take, answers []store.Answer) {
	id := takes[0].ID
	j.logs.Take(takes, answers)
	for i := range takes {
		takes[i].ID = id
	}
}

// askOne asks the log of one take.
func (j *journal) askOne(t store.Take) store.Answer {
	takes, answers := [1]store.Take{t}, [1]store.Answer{}
	j.ask(takes[:], answers[:])
	return answers[0]
}

// deny records a request for replay that is denied because of the answers to its known takes. The other answers must be
// zero; the logs of this process fill them in.
func (j *journal) deny(r *request, known *[store.MaxLimits]bool, sent delivery) {
	for i := range r.takes {
		t, a := &r.takes[i], &r.answers[i]
		if !known[i] {
			peek := *t
			peek.Mode, peek.Cost = store.ModePeek, fitting(t)
			*a = j.askOne(peek)
		}
		counted := !a.Allowed && countsDenied(t)
		if counted {
			a.Retry = max(a.Retry, j.askOne(*t).Retry)
		}
		j.note(t, a, counted, sent)
	}
}

// countsDenied reports whether t is recorded although it is denied.
func countsDenied(t *store.Take) bool {
	_, mode := t.Plan.Counted(t.Cost, t.Mode)
	return mode == store.ModeChargeDenied
}

// hold adds slots that the store has to the log of this process, unless it has them already.
func (j *journal) hold(t *store.Take, ids []uint64) {
	m := store.MergeRequest{Key: t.Key, Keep: t.Plan.Keep}
	for _, id := range ids {
		m.Entries = append(m.Entries, store.Entry{ID: id, Cost: 1})
	}
	j.logs.Merge(&m)
}

// release records for replay that a slot was given back, if the store may have it. A slot is own if it was taken
// without the store and not renewed.
func (j *journal) release(t *store.Take, own bool) {
	if _, sent := j.unconfirmedSlots.LoadAndDelete(t.ID); own && !sent {
		return
	}
	j.add(t, journalEntry{id: t.ID, delivery: unconfirmed, settled: true})
}

// note records for replay that a take was counted here, or else that it must not be in the store's log. In ModeUpTo the
// store may have granted another number of units. Algorithms other than the sliding log keep no takes, so nothing is
// replayed to them.
func (j *journal) note(t *store.Take, a *store.Answer, counted bool, sent delivery) {
	if !keepsEntries(t) {
		return
	}
	_, mode := t.Plan.Counted(t.Cost, t.Mode)
	other := mode == store.ModeUpTo && sent != unsent
	switch {
	case mode == store.ModePeek || mode == store.ModeChargeDenied && t.Plan.NeverFits(t.Cost):
	case t.Plan.Slots && counted: // in this process only
		if sent == unconfirmed {
			j.unconfirmedSlots.Store(t.ID, nil)
		}
	case counted && (sent != delivered || other):
		j.add(t, journalEntry{id: t.ID, cost: int32(unitsOf(t, a)), delivery: sent, settled: other})
	case !counted && sent != unsent:
		j.add(t, journalEntry{id: t.ID, delivery: sent, settled: true})
	}
}

// settle changes the cost of a take. It reports whether the take is in the backlog, so that a replay changes the
// store's entry.
func (j *journal) settle(s store.Settlement) (later bool) {
	j.logs.Settle(&s)
	return j.backlogs.settle(&s)
}

// reset forgets a key. It returns the replay in progress, or nil.
func (j *journal) reset(key *store.Key) *run {
	j.logs.Reset(key)
	return j.backlogs.reset(key)
}
