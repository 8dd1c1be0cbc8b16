package core

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"
)

func textKey(sp *space, text string) *StorageKey {
	return &StorageKey{space: sp, identity: identity{kind: kindBy, text: text}}
}

// takeAt is a take of one unit by who has read the clock then, and gets the lock now.
func takeAt(s *MemoryStore, k *StorageKey, now time.Duration) {
	t := Take{Limits: Limits{PerMinute(1)}, Keep: time.Minute, Cost: 1}
	hash := k.hash()
	sh := &s.shards[hash%shardCount]
	if log := sh.logs.find(k, hash); log != nil && log.lock(int64(now)) {
		log.take(&t, new(Answer))
	} else {
		sh.takeNew(s, k, hash, int64(now), &t, new(Answer))
	}
}

// other is a key in the same shard as k, and in the same log where keys share some.
func other(k *StorageKey) *StorageKey {
	s := NewMemoryStore()
	for i := 0; ; i++ {
		c := textKey(k.space, fmt.Sprint("other ", i))
		if c.hash()%shardCount == k.hash()%shardCount && string(s.appendSlot(nil, c, c.hash())) == string(s.appendSlot(nil, k, k.hash())) {
			return c
		}
	}
}

// A key does not go back in time when it gets a log of its own, nor when it loses it.
func TestTimeBetweenLogs(t *testing.T) {
	sp := newSpace("p", nil)
	a, b := textKey(sp, "a"), textKey(sp, "b")
	hash := b.hash()
	late := int64(70500 * time.Millisecond)

	s := NewMemoryStore(MaxKeys(1))
	takeAt(s, a, 0)
	takeAt(s, b, 10*time.Second)
	s.Reset(t.Context(), *a)
	sh := &s.shards[hash%shardCount]
	sh.shared[string(s.appendSlot(nil, b, hash))].now = late // somebody has looked at it
	takeAt(s, b, 69900*time.Millisecond)                     // while its unit is in the window
	if log := sh.logs.find(b, hash); log == nil || log.At(0) != late {
		t.Errorf("its own log has not begun at %v", time.Duration(late))
	}

	s = NewMemoryStore(MaxKeys(1))
	takeAt(s, b, 10*time.Second)
	takeAt(s, other(b), time.Duration(late)) // it takes b's place
	takeAt(s, b, 69900*time.Millisecond)
	sh = &s.shards[hash%shardCount]
	if log := sh.shared[string(s.appendSlot(nil, b, hash))]; log == nil || log.At(0) != late {
		t.Errorf("the shared log has not begun at %v", time.Duration(late))
	}
}

// Logs in which nothing is left, or nothing ever was, take nobody's place.
func TestEmptyLogsLeave(t *testing.T) {
	for name, ask := range map[string]func(*Limiter, string){
		"undone": func(l *Limiter, key string) {
			d, _ := l.Allow(t.Context(), key)
			d.Undo(t.Context())
		},
		"never": func(l *Limiter, key string) { l.AllowN(t.Context(), key, 11) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewMemoryStore(MaxKeys(1000))
				l, err := New(PerDay(10), Global(), WithStore(s))
				if err != nil {
					t.Fatal(err)
				}
				for i := range 10_000 {
					ask(l, fmt.Sprint(i))
				}
				if s.Keys() > 2*shardCount || s.Shared() > 0 {
					t.Errorf("%d keys, %d takes of shared logs; want few and none", s.Keys(), s.Shared())
				}
			})
		})
	}
}

// Nor do those in which something was left when they were last looked at.
func TestUndoneLogsLeave(t *testing.T) {
	s := NewMemoryStore(MaxKeys(1000))
	l, err := New(PerDay(10), Global(), WithStore(s))
	if err != nil {
		t.Fatal(err)
	}
	decisions := make([]Decision, 1000)
	for i := range decisions {
		decisions[i], _ = l.Allow(t.Context(), fmt.Sprint(i))
	}
	for i := range s.shards {
		s.shards[i].sweep(s, 1000)
	}
	for i := range decisions {
		decisions[i].Undo(t.Context())
	}
	for i := range 900 {
		l.Allow(t.Context(), fmt.Sprint("new ", i))
	}
	if s.Shared() > 0 {
		t.Errorf("%d takes of shared logs, though nothing was left of others", s.Shared())
	}
}

// What one key records, where keys share a log, pushes out nothing that another has used.
func TestRecordedInSharedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewMemoryStore(MaxKeys(1))
		l, err := New(PerMinute(3), Global(), WithStore(s))
		if err != nil {
			t.Fatal(err)
		}
		allowed := 0
		ask := func() {
			for range 5 {
				if d, _ := l.Allow(t.Context(), "b"); d.Allowed {
					allowed++
				}
			}
		}
		l.Allow(t.Context(), "a")
		ask()
		if d, err := l.Record(t.Context(), other(textKey(l.space, "b")).text, 2*MaxRecorded); err != nil || !d.Allowed {
			t.Error(d, err)
		}
		l.Reset(t.Context(), "a")
		if ask(); allowed != 3 {
			t.Errorf("%d were allowed, want 3", allowed)
		}
	})
}

// What is left of an entry of which a part was trimmed away is replayed once, under a name.
func TestTrimmedEntriesAreReplayed(t *testing.T) {
	j := newJournal(10)
	k := textKey(newSpace("p", nil), "b")
	take := func(id uint64, cost int) {
		j.take(&Take{Key: *k, Limits: Limits{PerMinute(9)}, Keep: time.Minute, Bound: 9, Cost: cost, ID: id, Mode: ModeChargeDenied}, new(Answer), fateUnsent)
	}
	take(1, 4)
	take(2, 4)
	take(3, 4) // of the first one unit is left
	b, _, _ := j.begin(k)
	recorded := func() part { return j.part(k, b, 500) }
	first, again := recorded(), recorded()
	if len(first.entries) != 3 || first.entries[0].cost != 1 || first.entries[0].id == 0 || again.entries[0].id != first.entries[0].id {
		t.Errorf("%v, then %v", first.entries, again.entries)
	}
	take(4, 1) // nothing is left of that, and when the rest is in the store, three units of the second
	j.merged(b, first)
	take(5, 1)
	for _, e := range recorded().entries {
		if e.id == 0 || e.id == 2 && e.cost != 3 {
			t.Errorf("%v are replayed again", recorded().entries)
		}
	}
	j.reset(*k)
	take(11, 4)
	whole := recorded()
	take(12, 4)
	j.merged(b, whole)
	take(13, 4) // of the one that was replayed whole a unit is left
	if p := recorded(); len(p.entries) != 2 || p.entries[0].id != 12 {
		t.Errorf("%v are replayed, want 12 and 13", p.entries)
	}
	if err := NewMemoryStore().Merge(t.Context(), Merge{Key: *k, Keep: time.Minute, Entries: []Recorded{{ID: 0, Cost: 1}}}); err != nil {
		t.Error(err)
	}
}

type panicky struct{ *MemoryStore }

func (panicky) Take(context.Context, Take) (Answer, error) { panic("a store's own mistake") }

// A store that panics is left alone after a while, as one that fails.
func TestPanicsAreFailures(t *testing.T) {
	c := configure([]Option{WithFailure(FailOpen)})
	c.store, c.name = panicky{NewMemoryStore()}, "p"
	r := newRemote(&c)
	panics := 0
	for range 20 {
		func() {
			defer func() {
				if recover() != nil {
					panics++
				}
			}()
			r.take(t.Context(), &Take{Key: *textKey(newSpace("p", nil), "b"), Limits: Limits{PerMinute(1)}, Keep: time.Minute, Cost: 1}, new(Answer))
		}()
	}
	if panics != failuresToOpen || r.breaker.State() != gobreaker.StateOpen {
		t.Errorf("%d panics of 20, and the breaker is %v", panics, r.breaker.State())
	}
}

type scripted struct {
	*MemoryStore
	take func(cost int) error
}

func (s scripted) Take(_ context.Context, t Take) (Answer, error) {
	return Answer{Allowed: true}, s.take(t.Cost)
}

// A success that began before the breaker opened says nothing of the store since: the breaker is still asked.
func TestLateSuccessCalmsNobody(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	c := configure([]Option{WithFailure(FailOpen), WithDenyCache(0)})
	c.name = "p"
	c.store = scripted{NewMemoryStore(), func(cost int) error {
		if cost == 2 {
			return errPanicked
		}
		asked <- struct{}{}
		<-answer
		return nil
	}}
	r := newRemote(&c)
	ask := func(cost int) bool {
		degraded, _ := r.take(t.Context(), &Take{Key: *textKey(newSpace("p", nil), "b"), Limits: Limits{PerMinute(9)}, Keep: time.Minute, Cost: cost}, new(Answer))
		return degraded
	}
	for range failuresToOpen - 1 {
		ask(2)
	}
	late := make(chan bool)
	go func() { late <- ask(1) }()
	<-asked
	ask(2)
	close(answer)
	if <-late || r.breaker.State() != gobreaker.StateOpen {
		t.Fatalf("the late one failed, or the breaker is %v", r.breaker.State())
	}
	if !ask(1) { // or this would wait for its turn to be asked
		t.Error("the store was asked though the breaker is open")
	}
}
