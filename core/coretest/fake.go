package coretest

import (
	"context"
	"sync"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// FakeStore is a [core.Store] for tests: exact and slow, its time stands still
// until it is told otherwise, and it fails on cue. The zero value is ready. Give its limiters
// [core.WithDenyCache](0), which goes by real time.
type FakeStore struct {
	mu    sync.Mutex
	now   time.Duration
	err   error
	logs  map[string]*oracle
	takes int
}

// Advance moves the store's time on.
func (f *FakeStore) Advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now += d
}

// Fail makes every question fail with err, until it is called with nil. A limiter that has been failed under
// [core.FailLocal] has a goroutine: within a bubble of testing/synctest, close it at the end.
func (f *FakeStore) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// Takes is how many takes the store was asked for.
func (f *FakeStore) Takes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.takes
}

// Validate implements [core.Store].
func (f *FakeStore) Validate(*store.Plan) error { return nil }

// Take implements [core.Store].
func (f *FakeStore) Take(_ context.Context, t store.Take) (a store.Answer, err error) {
	err = f.on(t.Key, func(o *oracle) {
		f.takes++
		o.forget(t.Plan.Keep)
		a = o.take(t)
	})
	return a, err
}

// Settle implements [core.Store].
func (f *FakeStore) Settle(_ context.Context, s store.Settlement) error {
	return f.on(s.Key, func(o *oracle) { o.settle(s.ID, s.Cost) })
}

// Log implements [core.Store].
func (f *FakeStore) Log(_ context.Context, key store.Key, window time.Duration) (entries []core.Entry, err error) {
	err = f.on(key, func(o *oracle) { entries = o.log(window) })
	return entries, err
}

// Merge implements [core.Store].
func (f *FakeStore) Merge(_ context.Context, m store.MergeRequest) error {
	return f.on(m.Key, func(o *oracle) { o.merge(m.Entries) })
}

// Reset implements [core.Store].
func (f *FakeStore) Reset(_ context.Context, key store.Key) error {
	return f.on(key, func(o *oracle) { o.entries = nil })
}

// on answers a question about one log.
func (f *FakeStore) on(key store.Key, question func(*oracle)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	o := f.logs[key.String()]
	if o == nil {
		o = new(oracle)
		if f.logs == nil {
			f.logs = make(map[string]*oracle)
		}
		f.logs[key.String()] = o
	}
	o.now = f.now
	question(o)
	return nil
}
