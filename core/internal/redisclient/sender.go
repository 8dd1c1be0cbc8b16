package redisclient

import (
	"cmp"
	"context"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/internal/deadline"
	"github.com/sashlimit/sash/core/store"
)

// batchKey is what takes must have in common to be sent together.
type batchKey struct {
	plans [store.MaxLimits]*store.Plan // of the logs that a take is about
	mode  store.Mode
	node  any
}

// sender sends the takes with one batchKey.
type sender struct {
	Format

	key    batchKey
	conn   *Conn
	counts *batchCounts // of the store

	weights weights // the logs that had some

	abandoned chan struct{} // of its calls: see call

	// clock is the time of a server, in microseconds, when it executed the latest command whose reply has arrived. It
	// is kept if the scripts want it: see Format.Since.
	//
	// A client may send a command twice. To find out whether it was executed before, the script of takes looks at the
	// entries that the log has since that time, which comes with the command. A server executes nothing if its clock is
	// earlier, so no entry of the command is older.
	clock atomic.Int64
}

// batchCounts counts the batches of a store's batchers.
type batchCounts struct {
	sizes [len(store.Batches{}.Sizes)]atomic.Uint64
	more  atomic.Uint64 // takes in batches of more than one
}

// add counts a batch of n takes.
func (c *batchCounts) add(n int) {
	c.sizes[min(bits.Len(uint(n-1)), len(c.sizes)-1)].Add(1)
	if n > 1 {
		c.more.Add(uint64(n))
	}
}

func (c *batchCounts) snapshot() (b store.Batches) {
	for i := range c.sizes {
		b.Sizes[i] = c.sizes[i].Load()
	}
	b.Takes = b.Sizes[0] + c.more.Load()
	return b
}

// scriptOf returns the script for these takes, which are of logs with weights or of others: see weighs.
func (s *sender) scriptOf(weighs bool, takes ...*take) Script {
	switch {
	case !weighs:
		return s.Script
	case slices.ContainsFunc(takes, (*take).books):
		return s.Booked
	}
	return s.Weighted
}

// weighs reports whether the script for logs with weights is to decide about a take, of which note has returned m.
func (s *sender) weighs(m *marks, t *take) bool {
	return !s.Weighted.isZero() && (t.costs() != "" || s.weights.known(m, t.key))
}

// note notes which of these takes give their logs weights. It returns the marks, or nil.
func (s *sender) note(takes ...*take) *marks {
	if s.Weighted.isZero() {
		return nil
	}
	m := s.weights.current(len(takes))
	for _, t := range takes {
		switch costs := t.costs(); {
		case costs == "":
		case len(costs) > costLength && s.Logs > 1: // a log of weights beside one of single units
			s.weights.all.Store(true)
		default:
			m = s.weights.mark(m, t.key)
		}
	}
	return m
}

// found notes that a log of a take has weights. Requests over several logs mostly have some in common then.
func (s *sender) found(m *marks, t *take) *marks {
	if s.Logs > 1 {
		s.weights.all.Store(true)
	}
	return s.weights.found(m, t.key)
}

// sendOne sends a take by itself.
func (s *sender) sendOne(t *take) {
	s.counts.add(1)
	m := s.note(t)
	if s.sendOneTo(s.scriptOf(s.weighs(m, t), t), t); isWeighted(t.reply) && t.err == nil {
		s.found(m, t)
		s.sendOneTo(s.Weighted, t)
	}
	t.takes = 1
}

func (s *sender) sendOneTo(sc Script, t *take) {
	q := &t.own
	*q = s.newCall(sc, append(append(make([]string, 0, s.Logs+1), t.keys...), t.argument), false, t)
	err := s.exchange(t.ctx, q)
	if t.err = cmp.Or(err, q.err); t.err == nil {
		t.reply, _, t.err = s.cut(q.reply, t, true)
	}
}

// send sends a batch, and gives each take the part of the reply that is about its group. Groups whose logs have weights
// are decided by a script of their own, all takes of a log by one script. Those of which this was not known are sent
// again, in their order. Requests over several logs may have some in common, so one script decides them all.
func (s *sender) send(ctx context.Context, batch []*take) {
	s.counts.add(len(batch))
	groups := s.groups(batch)
	m := s.note(groups...)
	plain, weighted := s.split(m, groups)
	s.sendParts(ctx, batch, false, plain, weighted)
	again := part{script: s.Weighted}
	for _, g := range plain.groups {
		if g.err == nil && isWeighted(g.reply) {
			m = s.found(m, g)
			again.groups = append(again.groups, g)
		}
	}
	s.sendParts(ctx, batch, false, again)
	for _, t := range batch {
		t.reply, t.takes, t.err = t.group.reply, t.group.takes, t.group.err
	}
}

// part is groups of a batch that one script decides.
type part struct {
	script Script
	groups []*take
}

// split returns what the usual script decides, and what that of logs with weights does.
func (s *sender) split(m *marks, groups []*take) (plain, weighted part) {
	weighs := func(t *take) bool { return s.weighs(m, t) }
	switch {
	case !slices.ContainsFunc(groups, weighs): // as mostly
		plain.groups = groups
	case s.Logs > 1:
		weighted.groups = groups
	default:
		for _, g := range groups {
			of := &plain
			if weighs(g) {
				of = &weighted
			}
			of.groups = append(of.groups, g)
		}
	}
	plain.script, weighted.script = s.scriptOf(false), s.scriptOf(true, weighted.groups...)
	return plain, weighted
}

// sendParts sends parts of a batch, and sets the replies of the first takes of the groups. A key of another type ends
// the script, so the groups are sent again by halves until those of that key fail alone. again tells that.
func (s *sender) sendParts(ctx context.Context, batch []*take, again bool, parts ...part) {
	var calls []*call
	var sent [][]*take // with each call
	for _, p := range parts {
		each := 1 // groups in a call
		if s.conn.Single {
			each = max(len(p.groups), 1)
		}
		texts := make([]string, 0, len(p.groups)*(s.Logs+1))
		for some := range slices.Chunk(p.groups, each) {
			begin := len(texts)
			for _, g := range some {
				texts = append(texts, g.keys...)
			}
			for _, g := range some {
				texts = append(texts, g.groupArgument())
			}
			q := s.newCall(p.script, texts[begin:], again, batch...)
			calls, sent = append(calls, &q), append(sent, some)
		}
	}
	if len(calls) == 0 {
		return
	}
	err := s.exchange(ctx, calls...)
	for i, q := range calls {
		failed, n := cmp.Or(err, q.err), len(sent[i])
		if n > 1 && !s.Counts && failed != nil && new(Package).diagnose(failed).OneKey {
			s.sendParts(ctx, batch, true, part{q.script, sent[i][:n/2]})
			s.sendParts(ctx, batch, true, part{q.script, sent[i][n/2:]})
			continue
		}
		for j, g := range sent[i] {
			if g.err = failed; g.err == nil {
				g.reply, q.reply, g.err = s.cut(q.reply, g, j == n-1)
			}
		}
	}
}

// clockSlack is by how much the clocks of several servers may differ.
const clockSlack = time.Second

// newCall returns a call about groups, of which texts are the keys and then the arguments. It looks through whole
// streams if one of the takes is sent once more: what was executed before may be older than the latest reply.
//
// A command to one server has pointers to them, because pointers need no allocation to become arguments; clients of
// several servers do not follow a pointer to find the key, and those of unknown types follow none. Texts are not reused
// as takes are, since a client's hook may keep the arguments of a command.
func (s *sender) newCall(sc Script, texts []string, again bool, takes ...*take) call {
	q := newCall(sc, len(texts)/(s.Logs+1)*s.Logs, len(texts)/(s.Logs+1)+len(s.Tail))
	q.abandoned = s.abandoned
	for i := range texts {
		if s.conn.Single && s.conn.Process != nil {
			q.args[keysAt+i] = &texts[i]
		} else {
			q.args[keysAt+i] = texts[i]
		}
	}
	copy(q.args[keysAt+len(texts):], s.Tail)
	if s.Since {
		at := s.clock.Load()
		isAgain := func(t *take) bool { return deadline.IsAgain(t.ctx) }
		switch {
		case again || slices.ContainsFunc(takes, isAgain):
			at = 0
		case !s.conn.Single && s.key.node == nil: // several servers, whose clocks differ
			at = max(0, at-clockSlack.Microseconds())
		}
		q.args[len(q.args)-1] = at
	}
	return q
}

// groups puts takes of equal keys and costs together, and returns the first take of each group. A script looks for
// takes that were executed before at the beginning of a group, so a take that is sent once more begins one.
func (s *sender) groups(batch []*take) []*take {
	groups := make([]*take, 0, len(batch))
	var byKey map[string]*take
	if s.Grouped {
		byKey = make(map[string]*take, len(batch))
	}
	for _, t := range batch {
		g := byKey[t.key]
		if g == nil || g.costs() != t.costs() || deadline.IsAgain(t.ctx) {
			if s.Grouped {
				byKey[t.key] = t
			}
			t.group, t.takes, t.place, t.ids = t, 1, 0, nil
			groups = append(groups, t)
			continue
		}
		if g.takes == 1 {
			g.ids = append(make([]byte, 0, 8*idLength), g.id()...)
		}
		g.ids = append(g.ids, t.id()...)
		t.group, t.place = g, g.takes
		g.takes++
	}
	return groups
}

// groupArgument returns the argument for the takes of a group.
func (t *take) groupArgument() string {
	if t.takes == 1 {
		return t.argument
	}
	return string(append(t.ids, t.costs()...))
}

// exchange runs calls of the batcher's script, as conn.do does.
func (s *sender) exchange(ctx context.Context, calls ...*call) error {
	err := s.conn.do(ctx, calls...)
	if err != nil || !s.Since {
		return err
	}
	var refused []*call
	for _, q := range calls {
		if q.err == nil && len(q.reply) == 1 {
			q.args = slices.Clone(q.args) // the client may still hold the old ones
			q.args[len(q.args)-1] = int64(0)
			refused = append(refused, q)
		}
	}
	if refused != nil {
		if err = s.conn.do(ctx, refused...); err != nil {
			return err
		}
	}
	for _, q := range calls {
		if q.err != nil {
			continue
		}
		if n := len(q.reply) - 1; n < 1 {
			q.err = ProtocolError("a reply of %d numbers", n+1)
		} else {
			s.clock.Store(max(0, q.reply[n]))
			q.reply = q.reply[:n]
		}
	}
	return nil
}
