package redisstore

import (
	"context"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// logsOf returns the store itself, or what a store with streams is made of.
func logsOf(s core.Store) *redisStore {
	if s, ok := s.(*streamStore); ok {
		return s.logs
	}
	return s.(*redisStore)
}

// TakeTogether sends takes of one policy as one batch: in one script if single, in one pipeline if not.
func TakeTogether(ctx context.Context, s core.Store, single bool, takes []store.Take) ([]store.Answer, error) {
	rs := logsOf(s)
	rs.conn.single = single
	b := rs.batchers.of(&takes[0], nil, rs.conn, nil)
	batch := make([]*take, len(takes))
	for i := range takes {
		t := &takes[i]
		batch[i] = &take{done: make(chan struct{}, 1), ctx: ctx, key: rs.key(&t.Key), id: idText(t.ID), cost: t.Cost}
	}
	b.send(ctx, batch)
	answers := make([]store.Answer, len(takes))
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

// TakeAllTogether sends requests over several logs as one batch, as TakeTogether does.
func TakeAllTogether(ctx context.Context, s core.Store, requests [][]store.Take) ([][]store.Answer, error) {
	rs := logsOf(s)
	first := requests[0]
	b := rs.batchers.of(&first[0], first[1:], rs.conn, nil)
	batch := make([]*take, len(requests))
	for i, takes := range requests {
		batch[i] = &take{done: make(chan struct{}, 1), ctx: ctx, cost: takes[0].Cost}
		rs.setKeys(batch[i], takes)
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

// Variant returns the text of a script in which some of the files that it includes have other contents.
func Variant(text string, contents map[string]string) string {
	name, ok := scriptNames()[text]
	if !ok {
		panic("no script has this text")
	}
	return assemble(variant{parts, contents}, name)
}

// scriptNames returns the names of all Lua files by their texts.
var scriptNames = sync.OnceValue(func() map[string]string {
	files, err := fs.Glob(parts, "lua/*.lua")
	if err != nil {
		panic(err)
	}
	names := make(map[string]string)
	for _, file := range files {
		name := strings.TrimSuffix(path.Base(file), ".lua")
		names[assemble(parts, name)] = name
	}
	return names
})

// variant is a folder of which some files have other contents.
type variant struct {
	fs.ReadFileFS

	contents map[string]string
}

func (v variant) ReadFile(file string) ([]byte, error) {
	if text, ok := v.contents[strings.TrimSuffix(path.Base(file), ".lua")]; ok {
		return []byte(text), nil
	}
	return v.ReadFileFS.ReadFile(file)
}

// PartOf returns the content of a file that scripts include.
func PartOf(name string) string {
	files, err := fs.Glob(parts, "lua/*.lua")
	for _, file := range files {
		text, _ := parts.ReadFile(file)
		if err == nil && strings.Contains(string(text), "-- include "+name+"\n") {
			return assemble(parts, name)
		}
	}
	panic("no script includes " + name)
}

// SlotOf is the hash slot of a stored key in a cluster.
func SlotOf(key string) int { return slotOf(key) }

// WithProcess has a store give commands to process.
func WithProcess(s core.Store, process func(context.Context, redis.Cmder) error) core.Store {
	logsOf(s).conn.process = process
	logsOf(s).undoTimeout = time.Minute // what was not removed in time would differ from an oracle's log
	return s
}

// Single has a store use one script for several keys, as it does for a *redis.Client.
func Single(s core.Store) core.Store {
	logsOf(s).conn.single = true
	return s
}

// Batches returns the batches in which takes of one policy leave that wait at the same time, as indexes of takes.
func Batches(ctx context.Context, s core.Store, takes []store.Take) (batches [][]int) {
	rs := logsOf(s)
	q := queue{room: rs.batchers.of(&takes[0], nil, rs.conn, nil).waiting.room}
	waiting := make(map[*take]int)
	for i := range takes {
		t := &take{ctx: ctx, key: rs.key(&takes[i].Key), cost: takes[i].Cost}
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
	rs := logsOf(s)
	rs.batchers.mu.RLock()
	defer rs.batchers.mu.RUnlock()
	for _, b := range rs.batchers.all {
		b.mu.Lock()
		n += b.waiting.waiting
		b.mu.Unlock()
	}
	return n
}

// DialsAfterClose reports whether a pool of this go-redis goes on dialling after its client is closed, and the store
// cannot know that it is.
func DialsAfterClose() bool { return redials && clonesKeepHooks() }

// ClonesKeepHooks reports whether the store's client is a clone with the hooks that were there when it was made.
func ClonesKeepHooks() bool { return clonesKeepHooks() }

// TakeText and JointText are the scripts of takes and of requests over several logs.
var TakeText, JointText = takeScript.text.(string), jointScript.text.(string)

// StreamTakeText is the script of takes if logs are streams.
var StreamTakeText = streamTakeScript.text.(string)
