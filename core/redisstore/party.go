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
	*q = l.question(1)
	l.put(q, 0, &t.key, &t.id, t.cost)
	if t.err = cmp.Or(l.conn.ask(t.ctx, q), q.err); t.err == nil {
		t.reply, t.err = l.part(q, true)
	}
	t.takes = 1
}

// send asks the server, and gives each take its part of the reply.
func (l *lane) send(ctx context.Context, batch []*take) {
	parties, of := l.parties(batch)
	var questions []*question
	if l.conn.single {
		q := l.question(len(parties))
		for i := range parties {
			l.putAll(&q, i, &parties[i])
		}
		questions = []*question{&q}
	} else {
		for i := range parties {
			q := l.question(1)
			l.putAll(&q, 0, &parties[i])
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

// put writes what is asked about the i-th key. A pointer needs no box, but only a single server's client reads
// through it where it looks for the key.
func (l *lane) put(q *question, i int, key, ids *string, cost int) {
	takes := &q.args[keysAt+q.keys+i]
	if l.conn.single {
		q.args[keysAt+i], *takes = key, ids
	} else {
		q.args[keysAt+i], *takes = *key, *ids
	}
	if cost > 1 {
		*takes = *ids + " " + strconv.Itoa(cost)
	}
}

func (l *lane) putAll(q *question, i int, p *party) {
	ids := &p.first.id
	if p.takes > 1 {
		all := string(p.ids)
		ids = &all
	}
	l.put(q, i, &p.first.key, ids, p.first.cost)
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
