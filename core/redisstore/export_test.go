package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
)

// TakeTogether sends takes of one policy as one batch: in one script if single, in one pipeline if not.
func TakeTogether(ctx context.Context, s core.Store, single bool, takes []core.Take) ([]core.Answer, error) {
	store := s.(*store)
	store.conn.single = single
	b := store.batchers.of(&takes[0], store.conn, nil)
	batch := make([]*take, len(takes))
	for i := range takes {
		batch[i] = &take{done: make(chan struct{}, 1), ctx: ctx, key: store.key(&takes[i].Key), id: idText(takes[i].ID), cost: takes[i].Cost}
	}
	b.send(ctx, batch)
	answers := make([]core.Answer, len(takes))
	for i := range takes {
		if batch[i].err != nil {
			return nil, batch[i].err
		}
		var err error
		if answers[i], err = b.answer(batch[i], &takes[i]); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// WithProcess has a store give commands to process.
func WithProcess(s core.Store, process func(context.Context, redis.Cmder) error) core.Store {
	s.(*store).conn.process = process
	return s
}

// Batches returns the batches in which takes of one policy leave that wait at the same time, as indexes of takes.
func Batches(ctx context.Context, s core.Store, takes []core.Take) (batches [][]int) {
	store := s.(*store)
	q := queue{room: store.batchers.of(&takes[0], store.conn, nil).waiting.room}
	waiting := make(map[*take]int)
	for i := range takes {
		t := &take{ctx: ctx, key: store.key(&takes[i].Key), cost: takes[i].Cost}
		waiting[t] = i
		q.add(t)
	}
	for batch := q.nextBatch(); batch != nil; batch = q.nextBatch() {
		var of []int
		for _, t := range batch {
			of = append(of, waiting[t])
		}
		batches = append(batches, of)
	}
	return batches
}

// Queued returns how many takes wait for a batch.
func Queued(s core.Store) (n int) {
	store := s.(*store)
	store.batchers.mu.RLock()
	defer store.batchers.mu.RUnlock()
	for _, b := range store.batchers.all {
		b.mu.Lock()
		n += b.waiting.waiting
		b.mu.Unlock()
	}
	return n
}

// DialsAfterClose reports whether a pool of this go-redis goes on dialling after its client is closed, and the store
// cannot know that it is.
func DialsAfterClose() bool { return redials && clonesKeepHooks() }
