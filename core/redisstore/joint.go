package redisstore

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// TakeAll implements [store.Joint]. If one script may use all logs of the request, it decides in one step.
func (s *redisStore) TakeAll(ctx context.Context, takes []store.Take, answers []store.Answer) (err error) {
	if err := store.ValidateAll(takes, answers); err != nil {
		return err
	}
	t := &takes[0]
	if t.Cost > maxCost {
		return costError(t.Cost)
	}
	if len(takes) == 1 {
		answers[0], err = s.Take(ctx, *t)
		return err
	}
	one, _ := takePool.Get().(*take)
	one.ctx, one.cost, one.place = ctx, t.Cost, 0
	s.setKeys(one, takes)
	if !s.conn.single && (s.conn.together == nil || !s.conn.together(one.keys)) {
		r := inTurn{
			store: s, takes: takes, answers: answers, keys: one.keys, id: one.id, cost: t.Cost,
			began: time.Now(),
		}
		takePool.Put(one)
		return r.run(ctx)
	}
	var node any
	if s.conn.node != nil {
		node = s.conn.node(ctx, one.keys[0])
	}
	b := s.batchers.of(t, takes[1:], s.conn, node)
	if err := b.do(one); err != nil {
		return failed(err)
	}
	defer takePool.Put(one)
	return b.answers(one, takes, answers)
}

// setKeys sets the take's keys and id. They share an allocation, as in keyAndID.
func (s *redisStore) setKeys(one *take, takes []store.Take) {
	var space [512]byte
	var ends [store.MaxLimits]int
	b := space[:0]
	for i := range takes {
		b = takes[i].Key.AppendTo(append(append(b, s.prefix...), ':'))
		ends[i] = len(b)
		b = append(b, ' ') // which no key has
	}
	n := len(b) - 1
	all := string(binary.BigEndian.AppendUint64(b, takes[0].ID))
	one.key, one.id, one.keys = all[:n], all[n+1:], make([]string, len(takes))
	begin := 0
	for i := range takes {
		one.keys[i] = all[begin:ends[i]]
		begin = ends[i] + 1
	}
}
