package coretest

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// FakeStore is a store for tests: exact and slow. Its time changes only by Advance, and it fails after Fail was called.
// It begins at the Unix epoch, from which the periods of a [core.FixedWindow] are counted too. The zero value is ready.
// Give its limiters [core.WithDenyCache](0): the deny cache uses real time.
type FakeStore struct {
	mu    sync.Mutex
	now   time.Duration
	err   error
	logs  map[string]*fakeLog
	takes int

	overrides map[string]map[string]store.Override // by policy and name
	changes   int                                  // of overrides
}

type fakeLog struct {
	definition

	keep time.Duration // the longest that was asked for
}

// Advance moves the store's time on.
func (f *FakeStore) Advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now += d
}

// Fail makes every valid call fail with err, until Fail is called with nil. After a failure, a limiter under
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

// Validate implements [store.Store].
func (f *FakeStore) Validate(...*store.Plan) error { return nil }

// Take implements [store.Store].
func (f *FakeStore) Take(_ context.Context, takes []store.Take, answers []store.Answer) error {
	if err := store.ValidateTakes(takes, answers); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	f.takes++
	logs := make([]*definition, len(takes))
	for i, t := range takes {
		logs[i] = f.log(t.Key, t.Plan.Keep)
	}
	copy(answers, decide(takes, logs))
	return nil
}

// Settle implements [store.Settler].
func (f *FakeStore) Settle(_ context.Context, s store.Settlement) error {
	return f.on(s.Key, 0, func(d *definition) { d.settle(s.ID, s.Cost) })
}

// Log implements [store.Lister].
func (f *FakeStore) Log(_ context.Context, key store.Key, window time.Duration) (entries []core.Entry, err error) {
	err = f.on(key, 0, func(d *definition) { entries = d.list(window) })
	return entries, err
}

// Merge implements [store.Merger].
func (f *FakeStore) Merge(_ context.Context, m store.MergeRequest) error {
	return f.on(m.Key, m.Keep, func(d *definition) { d.merge(m.Entries) })
}

// Renew implements [store.Renewer].
func (f *FakeStore) Renew(_ context.Context, r store.Renewal) error {
	return f.on(r.Key, r.Keep, func(d *definition) { d.renew(r.IDs) })
}

// Reset implements [store.Store].
func (f *FakeStore) Reset(_ context.Context, key store.Key) error {
	return f.on(key, 0, (*definition).empty)
}

// Book implements [store.Leaser].
func (f *FakeStore) Book(_ context.Context, b store.Booking) (booked store.Booked, err error) {
	if err := b.Validate(); err != nil {
		return booked, err
	}
	err = f.on(b.Take.Key, b.Take.Plan.Keep, func(d *definition) {
		f.takes++
		booked = d.book(&b)
	})
	return booked, err
}

// on calls question with the log of a key. If keep is positive, it first drops entries older than the longest keep.
func (f *FakeStore) on(key store.Key, keep time.Duration, question func(*definition)) error {
	if err := key.Validate(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	question(f.log(key, keep))
	return nil
}

// log returns the log of a key, which is made if there is none. The caller holds the lock.
func (f *FakeStore) log(key store.Key, keep time.Duration) *definition {
	l := f.logs[key.String()]
	if l == nil {
		l = new(fakeLog)
		if f.logs == nil {
			f.logs = make(map[string]*fakeLog)
		}
		f.logs[key.String()] = l
	}
	l.now, l.keep = f.now, max(l.keep, keep)
	if keep > 0 {
		l.forget(l.keep)
	}
	return &l.definition
}

// SetOverride implements [store.Overrider].
func (f *FakeStore) SetOverride(_ context.Context, policy string, o store.Override) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	all := f.overrides[policy]
	old, found := all[o.Name]
	switch {
	case found && o.Extend && o.Value != "" && !old.Until.Before(o.Until):
		return nil
	case !found && o.Value != "" && len(all) >= o.Most():
		maps.DeleteFunc(all, func(_ string, o store.Override) bool { return !time.Now().Before(o.Until) })
		same := 0
		for _, other := range all {
			if other.Extend == o.Extend {
				same++
			}
		}
		if same >= o.Most() {
			return store.TooManyOverrides(policy, &o)
		}
	}
	if all == nil {
		all = make(map[string]store.Override)
		if f.overrides == nil {
			f.overrides = make(map[string]map[string]store.Override)
		}
		f.overrides[policy] = all
	}
	delete(all, o.Name)
	if o.Value != "" {
		all[o.Name] = o
	}
	f.changes++
	return nil
}

// Overrides implements [store.Overrider].
func (f *FakeStore) Overrides(
	_ context.Context, policy, known string,
) (version string, all []store.Override, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept, ok := f.overrides[policy]
	if ok {
		version = strconv.Itoa(f.changes)
	}
	if f.err != nil || version == known {
		return version, nil, f.err
	}
	return version, slices.Collect(maps.Values(kept)), nil
}
