package redisclient

import (
	"context"

	"github.com/sashlimit/sash/core/store"
)

// This file has what the tests of the stores need.

// LogsOf returns the logs of a store of package redisstore or redisstream.
func LogsOf(s store.Store) *Logs {
	return s.(interface{ logs() *Logs }).logs() //nolint:forcetypeassert // all of them embed Logs
}

func (l *Logs) logs() *Logs { return l }

// TakeTogether sends requests of the same plans as one batch.
func (l *Logs) TakeTogether(ctx context.Context, requests [][]store.Take) ([][]store.Answer, error) {
	b := l.batchers.find(l.Conn, l.kind.NewFormat, requests[0], nil)
	batch := make([]*take, len(requests))
	for i, takes := range requests {
		batch[i] = &take{done: make(chan struct{}, 1), ctx: ctx}
		l.set(batch[i], takes)
	}
	b.send(ctx, batch)
	answers := make([][]store.Answer, len(requests))
	for i, takes := range requests {
		if batch[i].err != nil {
			return nil, batch[i].err
		}
		answers[i] = make([]store.Answer, len(takes))
		if err := b.answers(batch[i], takes, answers[i]); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// Queue returns the batches in which takes of one policy leave that wait at the same time, as indexes of takes.
func (l *Logs) Queue(ctx context.Context, takes []store.Take) (batches [][]int) {
	q := queue{rooms: l.batchers.find(l.Conn, l.kind.NewFormat, takes[:1], nil).Rooms}
	waiting := make(map[*take]int)
	for i := range takes {
		t := &take{ctx: ctx}
		l.set(t, takes[i:i+1])
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
