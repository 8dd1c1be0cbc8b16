package guard

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/internal/denycache"
	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/store"
)

// record is what this process has admitted without the store. Its logs decide while the store does not answer. They
// keep every entry until it leaves its window, whether it has been replayed or not, so that a store which fails
// repeatedly does not grant a fresh quota each time. Beside them are backlogs: the changes that the store's logs lack.
type record struct {
	logs    *memory.Store
	merges  bool // entries are recorded for replay
	settles bool // so are corrections, which are entries without units
	start   time.Time
	added   func() // is called when there is something more to replay

	most     int64         // backlogs
	backlogs atomic.Int64  // how many there are
	entries  atomic.Int64  // in all backlogs
	replayed atomic.Uint64 // entries
	lost     atomic.Uint64 // units for which there was no backlog left
	closed   atomic.Bool   // nothing is recorded for replay any more

	shards [64]recordShard
}

type recordShard struct {
	mu   sync.Mutex
	keys map[logKey]*backlog
}

// backlog is the changes that the store's log of one key lacks. The lock of its shard guards it, except the key.
type backlog struct {
	key         store.Key
	keep        time.Duration
	varies      bool
	entries     []entry // oldest first
	units       int
	corrections int  // entries added for takes that were denied
	run         *run // the replay in progress, or nil
}

// entry is a take that the store does not have, or may have with another cost. A cost of 0 means that the store must
// remove the take if it has it.
type entry struct {
	at      int64 // since the start of the record
	id      uint64
	cost    int32
	sent    delivery
	settled bool // the cost has changed, so the store may have another
	merging bool // it is in the part that is being replayed
}

// delivery says whether the store has a take.
type delivery uint8

const (
	unsent      delivery = iota // the store does not have it
	unconfirmed                 // it was sent, but there was no answer
	delivered                   // the store has it
)

// run is one replay of a backlog.
type run struct {
	done chan struct{} // closed at the end
	err  error         // why the replay ended early, once done is closed
}

// wait waits for the end of the replay. It returns why it ended early, or the error of ctx if that ends first.
func (r *run) wait(ctx context.Context) error {
	if err := await(ctx, r.done); err != nil {
		return err
	}
	return r.err
}

// await waits until done is closed, or returns the error of ctx if that ends first.
func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const (
	maxPart        = 500    // entries added to a log of the store by one call
	maxCorrections = 10_000 // of one key
	compactFrom    = 64     // entries
)

func newRecord(keys int, s *remote) *record {
	return &record{
		logs: memory.New(keys), start: time.Now(), added: func() {}, most: 2 * int64(keys),
		settles: s.settler != nil, merges: s.settler != nil && s.merger != nil,
	}
}

func (rec *record) now() int64 { return int64(time.Since(rec.start)) }

// take decides a request in this process and records it for replay. If takes are known to be denied, they have their
// answers, and the request is denied. All other answers must be zero.
func (rec *record) take(r *request, known *[store.MaxLimits]bool, sent delivery) {
	denied := slices.Contains(known[:], true)
	if !denied {
		rec.ask(r.takes, r.answers)
	}
	admitted := r.admitted()
	for i := range r.takes {
		t, a := &r.takes[i], &r.answers[i]
		if denied && !known[i] {
			peek := *t
			peek.Mode, peek.Cost = store.ModePeek, denycache.Fitting(t)
			*a = rec.askOne(&peek)
		}
		counted := admitted || !a.Allowed && t.Mode == store.ModeChargeDenied
		if denied && counted && !t.Plan.Slots {
			a.Retry = max(a.Retry, rec.askOne(t).Retry)
		}
		rec.note(t, a, counted, sent)
	}
}

// ask asks the logs of this process.
func (rec *record) ask(takes []store.Take, answers []store.Answer) {
	var own [store.MaxLimits]store.Take // since logs change the IDs of what they do not record
	rec.logs.Take(own[:copy(own[:], takes)], answers)
}

func (rec *record) askOne(t *store.Take) store.Answer {
	takes, answers := [1]store.Take{*t}, [1]store.Answer{}
	rec.logs.Take(takes[:], answers[:])
	return answers[0]
}

// note records for replay that a take was counted here, or else that it must not be in the store's log. In ModeUpTo the
// store may have granted another number of units. Algorithms other than the sliding log keep no takes, so nothing is
// replayed to them, and slots are renewed instead.
func (rec *record) note(t *store.Take, a *store.Answer, counted bool, sent delivery) {
	if !keepsEntries(t) || t.Plan.Slots {
		return
	}
	other := t.Mode == store.ModeUpTo && sent != unsent
	switch {
	case t.Mode == store.ModePeek || t.Mode == store.ModeChargeDenied && t.Plan.NeverFits(t.Cost):
	case counted && (sent != delivered || other):
		rec.add(t, entry{id: t.ID, cost: int32(denycache.Units(t, a)), sent: sent, settled: other})
	case !counted && sent != unsent:
		rec.remove(t)
	}
}

// remove records for replay that a take, which the store may have, must not be in its log.
func (rec *record) remove(t *store.Take) {
	rec.add(t, entry{id: t.ID, sent: unconfirmed, settled: true})
}

// hold adds slots that the store has to the log of this process, unless it has them already.
func (rec *record) hold(t *store.Take, ids []uint64) {
	m := store.MergeRequest{Key: t.Key, Keep: t.Plan.Keep}
	for _, id := range ids {
		m.Entries = append(m.Entries, store.Entry{ID: id, Cost: 1})
	}
	rec.logs.Merge(&m)
}

// lock locks the shard of a key and returns it with the key's backlog, or nil if the key has none.
func (rec *record) lock(key *store.Key) (*recordShard, *backlog) {
	sh := &rec.shards[key.Hash()%uint64(len(rec.shards))]
	sh.mu.Lock()
	return sh, sh.keys[logKeyOf(key)]
}

// add adds an entry of t to the backlog of its key.
func (rec *record) add(t *store.Take, e entry) {
	if !rec.settles || e.cost > 0 && !rec.merges {
		return
	}
	sh, b := rec.lock(&t.Key)
	defer sh.mu.Unlock()
	switch {
	case rec.closed.Load():
		return
	case b != nil:
	case rec.backlogs.Add(1) > rec.most:
		rec.backlogs.Add(-1)
		rec.lost.Add(uint64(e.cost))
		return
	default:
		if sh.keys == nil {
			sh.keys = make(map[logKey]*backlog)
		}
		b = &backlog{key: cloneKey(&t.Key)}
		sh.keys[logKeyOf(&b.key)] = b
	}
	if e.cost == 0 {
		if b.corrections++; b.corrections > maxCorrections {
			return
		}
	}
	b.keep, b.varies = max(b.keep, t.Plan.Keep), b.varies || t.Plan.Varies
	if len(b.entries) == cap(b.entries) {
		rec.expire(b)
		if len(b.entries) >= compactFrom {
			rec.removeFunc(b, (*entry).void)
		}
	}
	e.at = rec.now()
	b.entries = append(b.entries, e)
	b.units += int(e.cost)
	rec.entries.Add(1)
	rec.trim(b, t)
	rec.added()
}

// void reports whether there is nothing to replay, because the take was undone and never sent.
func (e *entry) void() bool { return e.cost == 0 && e.sent == unsent }

// trim drops the oldest units of takes that are recorded whether there is room or not, as the logs do.
func (rec *record) trim(b *backlog, t *store.Take) {
	most := t.Plan.Bound
	switch {
	case t.Mode == store.ModeRecord || len(t.Plan.Deciding()) == 0:
		most = max(most, store.MaxRecorded)
	case t.Mode != store.ModeChargeDenied:
		return
	}
	for over := b.units - most; over > 0; over = b.units - most {
		e := &b.entries[0]
		if int(e.cost) <= over {
			rec.dropOldest(b, 1)
			continue
		}
		if e.sent == unsent {
			e.id = newID() // a settlement of the take must not find the rest of it
		}
		e.cost -= int32(over)
		b.units -= over
	}
}

// dropOldest removes the oldest n entries.
func (rec *record) dropOldest(b *backlog, n int) {
	for i := range n {
		b.units -= int(b.entries[i].cost)
	}
	b.entries = b.entries[n:]
	rec.entries.Add(-int64(n))
}

// removeFunc removes the entries for which remove returns true. Changes that remove makes to other entries persist.
func (rec *record) removeFunc(b *backlog, remove func(*entry) bool) {
	kept := b.entries[:0]
	for i := range b.entries {
		e := b.entries[i]
		if remove(&e) {
			b.units -= int(e.cost)
			rec.entries.Add(-1)
		} else {
			kept = append(kept, e)
		}
	}
	b.entries = kept
}

// expire removes the entries that have left their window, since they no longer count in the store.
func (rec *record) expire(b *backlog) {
	cut, n := rec.now()-int64(b.keep), 0
	for n < len(b.entries) && b.entries[n].at <= cut {
		n++
	}
	rec.dropOldest(b, n)
}

// removeIfEmpty removes a backlog that has no entries and is not replayed.
func (rec *record) removeIfEmpty(sh *recordShard, b *backlog) {
	k := logKeyOf(&b.key)
	if rec.expire(b); len(b.entries) > 0 || b.run != nil || sh.keys[k] != b {
		return
	}
	rec.backlogs.Add(-1)
	if delete(sh.keys, k); len(sh.keys) == 0 {
		sh.keys = nil // a map never shrinks
	}
}

// settle changes the cost of a take. It reports whether the take is in the backlog, so that a replay changes the
// store's entry.
func (rec *record) settle(s *store.Settlement) (later bool) {
	rec.logs.Settle(s)
	sh, b := rec.lock(&s.Key)
	defer sh.mu.Unlock()
	if b == nil {
		return false
	}
	for i := len(b.entries) - 1; i >= 0; i-- {
		e := &b.entries[i]
		if e.id != s.ID {
			continue
		}
		if e.cost > 0 { // a take that was undone cannot be settled again
			b.units += s.Cost - int(e.cost)
			e.cost, e.settled = int32(s.Cost), true
		}
		return true
	}
	return false
}

// reset forgets a key. It returns the replay in progress, or nil.
func (rec *record) reset(key *store.Key) *run {
	rec.logs.Reset(key)
	sh, b := rec.lock(key)
	defer sh.mu.Unlock()
	if b == nil {
		return nil
	}
	rec.dropOldest(b, len(b.entries))
	return b.run
}

// lack is what the store lacks of a key at one instant: a key's backlog, as it changes an answer about a take.
type lack struct {
	count  int                          // of entries to replay; all that is known if they are more than maxPart
	states [store.MaxLimits]store.State // units in the window of each limit, and when the oldest of them leaves
}

func (l *lack) long() bool { return l.count > maxPart }

func (rec *record) lack(t *store.Take) (l lack) {
	sh, b := rec.lock(&t.Key)
	defer sh.mu.Unlock()
	if b == nil {
		return l
	}
	rec.expire(b)
	if l.count = len(b.entries); l.long() {
		return l
	}
	now := rec.now()
	for i := range b.entries {
		e := &b.entries[i]
		for n := range t.Plan.Limits {
			left := t.Plan.Limits[n].Window - time.Duration(now-e.at)
			if e.cost > 0 && left > 0 {
				l.states[n].Used += int(e.cost)
				l.states[n].Reset = cmp.Or(l.states[n].Reset, left)
			}
		}
	}
	return l
}

// begin returns the replay of a key's backlog, and the backlog if the caller has started the replay and must run it.
// Without a backlog it returns nil.
func (rec *record) begin(key *store.Key) (started *backlog, r *run) {
	sh, b := rec.lock(key)
	defer sh.mu.Unlock()
	switch {
	case b == nil:
		return nil, nil
	case b.run != nil:
		return nil, b.run
	}
	b.run = &run{done: make(chan struct{})}
	return b, b.run
}

// end is called by the caller that has started the replay.
func (rec *record) end(b *backlog, err error) {
	sh, _ := rec.lock(&b.key)
	defer sh.mu.Unlock()
	b.run.err = err
	close(b.run.done)
	b.run = nil
	rec.removeIfEmpty(sh, b)
}

// part is the part of a backlog that is replayed next.
type part struct {
	keep            time.Duration
	varies          bool
	merged, settled []entry // what is added to the store's log, and what is corrected then
}

// next returns what to do about the oldest entries, maxPart at most. They are unconfirmed from now on.
func (rec *record) next(b *backlog) part {
	sh, _ := rec.lock(&b.key)
	defer sh.mu.Unlock()
	rec.expire(b)
	rec.removeFunc(b, (*entry).void)
	p := part{keep: b.keep, varies: b.varies}
	for i := range b.entries[:min(len(b.entries), maxPart)] {
		e := &b.entries[i]
		if e.cost > 0 && e.sent != delivered {
			e.sent, e.merging = unconfirmed, true
			p.merged = append(p.merged, *e)
		}
		if e.settled {
			p.settled = append(p.settled, *e)
		}
	}
	return p
}

// markMerged records that the store has the part that next has returned. Entries that were settled meanwhile remain,
// since the store has their former cost.
func (rec *record) markMerged(b *backlog) {
	sh, _ := rec.lock(&b.key)
	defer sh.mu.Unlock()
	rec.removeFunc(b, func(e *entry) bool {
		if e.merging {
			e.sent, e.merging = delivered, false
		}
		return e.sent == delivered && !e.settled
	})
}

// markSettled records that the store has the cost of an entry, unless it has changed again.
func (rec *record) markSettled(b *backlog, sent entry) {
	sh, _ := rec.lock(&b.key)
	defer sh.mu.Unlock()
	rec.removeFunc(b, func(e *entry) bool { return e.id == sent.id && e.cost == sent.cost })
}

// all calls yield with the backlogs, of which only the keys may be read, in a random order, so that one which cannot be
// replayed does not always come before another. No shard is locked meanwhile.
func (rec *record) all(yield func(*backlog) bool) {
	for _, i := range rand.Perm(len(rec.shards)) {
		sh := &rec.shards[i]
		sh.mu.Lock()
		all := slices.Collect(maps.Values(sh.keys))
		sh.mu.Unlock()
		for _, b := range all {
			if !yield(b) {
				return
			}
		}
	}
}

// tidy removes the entries that have left their window, and then the backlogs that are empty.
func (rec *record) tidy() {
	for b := range rec.all {
		sh, _ := rec.lock(&b.key)
		rec.removeIfEmpty(sh, b)
		sh.mu.Unlock()
	}
}

// close removes all backlogs for good, and returns what was in them: units, and takes, of which some have no units.
func (rec *record) close() (units, takes int) {
	rec.closed.Store(true)
	for b := range rec.all {
		sh, _ := rec.lock(&b.key)
		rec.expire(b)
		for i := range b.entries {
			if e := &b.entries[i]; e.sent != delivered {
				units += int(e.cost)
			}
		}
		takes += len(b.entries)
		rec.dropOldest(b, len(b.entries))
		rec.removeIfEmpty(sh, b)
		sh.mu.Unlock()
	}
	return units, takes
}
