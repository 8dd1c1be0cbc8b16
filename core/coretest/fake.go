package coretest

import (
	"context"
	"sync"
	"time"

	"github.com/sashlimit/sash/core"
)

// FakeStore is a [core.Store] for tests: exact and slow, its time stands still
// until it is told otherwise, and it fails on cue. The zero value is ready.
type FakeStore struct {
	mu   sync.Mutex
	now  time.Duration
	err  error
	logs map[string]*oracle
}

// Advance moves the store's time on.
func (f *FakeStore) Advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now += d
}

// Fail makes every question fail with err, until it is called with nil.
func (f *FakeStore) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// Validate implements [core.Store].
func (f *FakeStore) Validate(core.Limits) error { return nil }

// Take implements [core.Store].
func (f *FakeStore) Take(_ context.Context, t core.Take) (core.Answer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return core.Answer{}, f.err
	}
	key := t.Key.String()
	o := f.logs[key]
	if o == nil {
		o = new(oracle)
		if f.logs == nil {
			f.logs = make(map[string]*oracle)
		}
		f.logs[key] = o
	}
	o.now = f.now
	o.forget(t.Keep)
	a := core.Answer{Allowed: o.fits(t.Limits, t.Cost, o.now)}
	if !a.Allowed {
		a.Retry = o.retry(t.Limits, t.Cost)
	}
	for i, l := range t.Limits {
		a.State[i] = core.State{Used: o.used(l.Window, o.now), Reset: o.reset(l.Window)}
		if a.Allowed && !t.Peek && a.State[i].Used == 0 {
			a.State[i].Reset = l.Window
		}
	}
	if a.Allowed && !t.Peek {
		o.record(t.Cost)
	}
	return a, nil
}

// Reset implements [core.Store].
func (f *FakeStore) Reset(_ context.Context, key core.StorageKey) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	delete(f.logs, key.String())
	return nil
}
