package redisstore

import (
	"cmp"
	"context"
	"strconv"
)

// party is takes of one key and cost.
type party struct {
	first *take
	takes int
	ids   []byte // where there is more than one
	reply []int64
	err   error
}

// sendOne asks about a take by itself.
func (l *lane) sendOne(t *take) {
	q := &t.alone
	if l.conn.single {
		q.init(takeScript, 1, newSingle(t, 1+len(l.tail)))
		copy(q.args[keysAt+2:], l.tail)
	} else {
		*q = l.question(1)
		q.args[keysAt], q.args[keysAt+1] = t.key, withCost(t.id, t.cost)
	}
	if t.err = cmp.Or(l.conn.ask(t.ctx, q), q.err); t.err == nil {
		t.reply, t.err = l.part(q, true)
	}
	t.takes = 1
}

// send asks the server, and gives each take its part of the reply.
func (l *lane) send(ctx context.Context, batch []*take) {
	parties, of := l.parties(batch)
	var questions []*question
	all := make([]texts, len(parties))
	for i := range parties {
		all[i] = parties[i].texts()
	}
	if l.conn.single {
		q := l.question(len(parties))
		for i := range all {
			q.args[keysAt+i], q.args[keysAt+len(all)+i] = &all[i].key, &all[i].ids
		}
		questions = []*question{&q}
	} else {
		for i := range all {
			q := l.question(1)
			q.args[keysAt], q.args[keysAt+1] = all[i].key, all[i].ids
			questions = append(questions, &q)
		}
	}
	err := l.conn.ask(ctx, questions...)
	for i := range parties {
		p, q, last := &parties[i], questions[0], i == len(parties)-1
		if !l.conn.single {
			q, last = questions[i], true
		}
		if p.err = cmp.Or(err, q.err); p.err == nil {
			p.reply, p.err = l.part(q, last)
		}
	}
	for i, t := range batch {
		p := &parties[of[i]]
		t.reply, t.takes, t.err = p.reply, p.takes, p.err
	}
}

// part takes the answer about one key off the reply.
func (l *lane) part(q *question, last bool) (part []int64, err error) {
	rest := q.reply
	size := l.size
	if l.plain > 0 && len(rest) > 0 {
		if rest[0] != 0 {
			size = l.plain
		} else {
			rest = rest[1:]
		}
	}
	if len(rest) < size || last && len(rest) > size {
		return nil, protocolError("a reply with %d numbers left where %d are due", len(rest), size)
	}
	q.reply = rest[size:]
	return rest[:size], nil
}

// question has room for so many keys.
func (l *lane) question(keys int) question {
	q := newQuestion(takeScript, keys, keys+len(l.tail))
	copy(q.args[keysAt+2*keys:], l.tail)
	return q
}

// texts are the key of a party and what is asked about it, for a command to one server. It has pointers to them, which
// need no box; other clients do not read through a pointer where they look for the key. A client's hook may keep the
// arguments of a command, so texts are never used again, as a take is.
type texts struct{ key, ids string }

// single is texts and the arguments that point to them.
type single struct {
	texts texts
	args  [keysAt + 5]any // as many as one limit needs
}

// newSingle returns the arguments of a command about one take, with room for so many after the key.
func newSingle(t *take, args int) []any {
	s := &single{texts: texts{t.key, withCost(t.id, t.cost)}}
	all := s.args[:]
	if keysAt+1+args > len(all) {
		all = make([]any, keysAt+1+args)
	}
	all = all[:keysAt+1+args]
	all[keysAt], all[keysAt+1] = &s.texts.key, &s.texts.ids
	return all
}

func (p *party) texts() texts {
	ids := p.first.id
	if p.takes > 1 {
		ids = string(p.ids)
	}
	return texts{p.first.key, withCost(ids, p.first.cost)}
}

func withCost(ids string, cost int) string {
	if cost > 1 {
		return ids + " " + strconv.Itoa(cost)
	}
	return ids
}

// parties puts takes of equal key and cost together, in the order of the first of them, and tells
// which party each take is of.
func (l *lane) parties(batch []*take) (parties []party, of []int) {
	parties, of = make([]party, 0, len(batch)), make([]int, len(batch))
	var known map[string]int
	if l.join {
		known = make(map[string]int, len(batch))
	}
	for i, t := range batch {
		n, ok := known[t.key]
		if !ok || parties[n].first.cost != t.cost {
			n = len(parties)
			if l.join {
				known[t.key] = n
			}
			parties = append(parties, party{first: t})
		}
		p := &parties[n]
		if of[i], t.place = n, p.takes; p.takes == 1 {
			p.ids = append(make([]byte, 0, 8*idLength), p.first.id...)
		}
		if p.takes++; p.takes > 1 {
			p.ids = append(p.ids, t.id...)
		}
	}
	return parties, of
}
