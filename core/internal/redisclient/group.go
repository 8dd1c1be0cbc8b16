package redisclient

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sashlimit/sash/core/internal/deadline"
)

// scriptOf returns the script for these takes.
func (b *batcher) scriptOf(takes ...*take) Script {
	if slices.ContainsFunc(takes, (*take).books) {
		return b.Booked
	}
	if b.Weighted.isZero() {
		return b.Script
	}
	weighted := b.weighted.Load()
	for _, t := range takes {
		if costs := t.costs(); !weighted && costs != "" {
			weighted = true
			if len(costs) > costLength { // a log of weights beside one of single units
				b.weighted.Store(true)
			}
		}
	}
	if weighted {
		return b.Weighted
	}
	return b.Script
}

// sendOne sends a take by itself.
func (b *batcher) sendOne(t *take) {
	b.counts.add(1)
	if b.sendOneTo(b.scriptOf(t), t); isWeighted(t.reply) && t.err == nil {
		b.weighted.Store(true)
		b.sendOneTo(b.Weighted, t)
	}
	t.takes = 1
}

func (b *batcher) sendOneTo(sc Script, t *take) {
	q := &t.own
	*q = b.newCall(sc, append(append(make([]string, 0, b.Logs+1), t.keys...), t.argument))
	b.lookThrough(q, false, t)
	err := b.exchange(t.ctx, q)
	if t.err = cmp.Or(err, q.err); t.err == nil {
		t.reply, _, t.err = b.cut(q.reply, t, true)
	}
}

// send sends a batch, and gives each take the part of the reply that is about its group. Groups whose logs have weights
// are sent again, in their order.
func (b *batcher) send(ctx context.Context, batch []*take) {
	b.counts.add(len(batch))
	groups := b.groups(batch)
	b.sendGroups(ctx, b.scriptOf(batch...), groups, batch, false)
	again := slices.DeleteFunc(groups, func(g *take) bool { return g.err != nil || !isWeighted(g.reply) })
	if len(again) > 0 {
		b.weighted.Store(true)
		b.sendGroups(ctx, b.Weighted, again, batch, false)
	}
	for _, t := range batch {
		t.reply, t.takes, t.err = t.group.reply, t.group.takes, t.group.err
	}
}

// sendGroups sends groups of a batch, and sets the replies of their first takes. A key of another type ends the script,
// so the groups are sent again by halves until those of that key fail alone. again tells that.
func (b *batcher) sendGroups(ctx context.Context, sc Script, groups, batch []*take, again bool) {
	each := 1 // groups in a call
	if b.conn.Single {
		each = len(groups)
	}
	var calls []*call
	texts := make([]string, 0, len(groups)*(b.Logs+1))
	for part := range slices.Chunk(groups, each) {
		begin := len(texts)
		for _, g := range part {
			texts = append(texts, g.keys...)
		}
		for _, g := range part {
			texts = append(texts, g.groupArgument())
		}
		q := b.newCall(sc, texts[begin:])
		b.lookThrough(&q, again, batch...)
		calls = append(calls, &q)
	}
	err := b.exchange(ctx, calls...)
	failed := cmp.Or(err, calls[0].err)
	if n := len(groups); n > 1 && each == n && !b.Counts && failed != nil && new(Package).diagnose(failed).OneKey {
		b.sendGroups(ctx, sc, groups[:n/2], batch, true)
		b.sendGroups(ctx, sc, groups[n/2:], batch, true)
		return
	}
	for i, g := range groups {
		q, last := calls[i/each], (i+1)%each == 0
		if g.err = cmp.Or(err, q.err); g.err == nil {
			g.reply, q.reply, g.err = b.cut(q.reply, g, last)
		}
	}
}

// clockSlack is by how much the clocks of several servers may differ.
const clockSlack = time.Second

// newCall returns a call about groups, of which texts are the keys and then the arguments.
//
// A command to one server has pointers to them, because pointers need no allocation to become arguments; clients of
// several servers do not follow a pointer to find the key, and those of unknown types follow none. Texts are not reused
// as takes are, since a client's hook may keep the arguments of a command.
func (b *batcher) newCall(sc Script, texts []string) call {
	q := newCall(sc, len(texts)/(b.Logs+1)*b.Logs, len(texts)/(b.Logs+1)+len(b.Tail))
	for i := range texts {
		if b.conn.Single && b.conn.Process != nil {
			q.args[keysAt+i] = &texts[i]
		} else {
			q.args[keysAt+i] = texts[i]
		}
	}
	copy(q.args[keysAt+len(texts):], b.Tail)
	if b.Since {
		at := b.clock.Load()
		if !b.conn.Single && b.key.node == nil { // several servers, whose clocks differ
			at = max(0, at-clockSlack.Microseconds())
		}
		q.args[len(q.args)-1] = at
	}
	return q
}

// lookThrough makes a call look through whole streams if one of the takes is sent once more: what was executed before
// may be older than the latest reply.
func (b *batcher) lookThrough(q *call, again bool, takes ...*take) {
	if b.Since && (again || slices.ContainsFunc(takes, func(t *take) bool { return deadline.IsAgain(t.ctx) })) {
		q.args[len(q.args)-1] = int64(0)
	}
}

// groups puts takes of equal keys and costs together, and returns the first take of each group.
func (b *batcher) groups(batch []*take) []*take {
	groups := make([]*take, 0, len(batch))
	var byKey map[string]*take
	if b.Grouped {
		byKey = make(map[string]*take, len(batch))
	}
	for _, t := range batch {
		g := byKey[t.key]
		if g == nil || g.costs() != t.costs() {
			if b.Grouped {
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
func (b *batcher) exchange(ctx context.Context, calls ...*call) error {
	err := b.conn.do(ctx, calls...)
	if err != nil || !b.Since {
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
		if err = b.conn.do(ctx, refused...); err != nil {
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
			b.clock.Store(max(0, q.reply[n]))
			q.reply = q.reply[:n]
		}
	}
	return nil
}
