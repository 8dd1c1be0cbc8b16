package guard

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/denycache"
	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// correctedStore is a guard with FailLocal, its store, and one key.
type correctedStore struct {
	*Guard

	t    *testing.T
	logs *sharedLogs
	conn *faultyStore
	key  store.Key
	plan *store.Plan
}

func newCorrectedStore(t *testing.T, quota int) *correctedStore {
	t.Helper()
	c := &correctedStore{t: t, logs: newSharedLogs(), key: store.NewKey("p", "k"), plan: planOf(quota, time.Hour)}
	c.conn = c.logs.connect()
	c.Guard = New(Config{Store: c.conn, Policy: "p", Failure: Local, Timeout: time.Second, LocalKeys: 10,
		DenyCache: time.Second})
	return c
}

// take asks for units, and returns the take with its ID and the answer.
func (c *correctedStore) take(cost int, mode store.Mode) (t *store.Take, a store.Answer, from event.Source) {
	t = &store.Take{Key: c.key, Plan: c.plan, Cost: cost, Mode: mode}
	from, _ = c.takeOne(c.t.Context(), t, &a)
	return t, a, from
}

func (c *correctedStore) settle(t *store.Take, cost int, degraded bool) {
	c.t.Helper()
	if err := c.Settle(c.t.Context(), store.Settlement{Key: c.key, ID: t.ID, Cost: cost}, degraded); err != nil {
		c.t.Error(err)
	}
}

// units returns how many units a log of the key has.
func (c *correctedStore) units(logs *memory.Store) (units int) {
	for _, e := range logs.Log(&c.key, time.Hour) {
		units += e.Cost
	}
	return units
}

// end waits for the replay, and compares the store's units with those of this process.
func (c *correctedStore) end(want int) {
	c.t.Helper()
	c.conn.up(0)
	time.Sleep(time.Minute)
	if here, there := c.units(c.record.logs), c.units(c.logs.logs); here != want || there != want {
		c.t.Errorf("%d units here and %d in the store, want %d", here, there, want)
	}
	if err := c.Close(); err != nil {
		c.t.Error(err)
	}
}

// What is left of a take that was trimmed is not corrected any more, neither here nor in the store.
func TestTrimmedTakesAreNotSettled(t *testing.T) {
	for _, cost := range []int{0, 2, 6} {
		synctest.Test(t, func(t *testing.T) {
			c := newCorrectedStore(t, 9)
			c.conn.down(refuses)
			for range failuresToOpen { // from now on takes are not sent, so the store has none of them
				c.take(1, store.ModePeek)
			}
			first, _, _ := c.take(4, store.ModeChargeDenied)
			c.take(4, store.ModeChargeDenied)
			if _, a, _ := c.take(4, store.ModeChargeDenied); a.Allowed { // it takes three units from the first
				t.Fatal("12 of 9 units fit")
			}
			c.conn.up(0)
			time.Sleep(time.Minute)
			c.settle(first, cost, true)
			c.end(9)
		})
	}
}

// A cost that changes while the store is told the one before is told as well.
func TestSettledDuringReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCorrectedStore(t, 9)
		c.conn.down(loses) // the store has the take, and this process does not know it
		take, a, from := c.take(2, store.ModeCharge)
		if !a.Allowed || from != event.Local {
			t.Fatal(a, from)
		}
		c.conn.down(refuses)
		c.settle(take, 1, true)
		c.logs.asked()
		c.conn.up(time.Second / 2)
		for !strings.Contains(c.logs.asked(), "settle") {
			time.Sleep(time.Second / 10)
		}
		c.settle(take, 3, true)
		c.end(3)
	})
}

// A cost that changes while the take is added to the store is told afterwards.
func TestSettledDuringMerge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCorrectedStore(t, 9)
		c.conn.down(refuses)
		take, _, _ := c.take(2, store.ModeCharge)
		c.conn.up(time.Second / 2)
		c.waitFor("merge", 1)
		c.settle(take, 1, true)
		c.end(1)
	})
}

// What has left its window by the end of an outage is not replayed, and is not kept until then.
func TestEntriesThatHaveLeftAreNotReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCorrectedStore(t, 9)
		c.plan = planOf(9, time.Minute)
		c.conn.down(refuses)
		c.take(2, store.ModeCharge)
		time.Sleep(time.Minute + tidyRecord + 2*retryStore)
		if n, backlogs := c.record.entries.Load(), c.record.backlogs.Load(); n != 0 || backlogs != 0 {
			t.Errorf("%d entries in %d backlogs", n, backlogs)
		}
		c.take(1, store.ModeCharge)
		time.Sleep(time.Minute)
		c.logs.asked()
		c.conn.up(0)
		time.Sleep(time.Minute / 2)
		if calls := c.logs.asked(); strings.Contains(calls, "merge") {
			t.Errorf("the store was asked %s", calls)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A denial is counted although a peek has been denied just before.
func TestDenialIsCountedAfterAPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCorrectedStore(t, 1)
		c.take(1, store.ModeCharge)
		c.take(1, store.ModePeek)
		if _, a, from := c.take(1, store.ModePeek); a.Allowed || from != event.Cache {
			t.Fatalf("%+v from %d, want a denial from the cache", a, from)
		}
		if _, a, from := c.take(1, store.ModeChargeDenied); a.Allowed || from != event.Store {
			t.Errorf("%+v from %d, want a denial from the store", a, from)
		}
	})
}

// After a replay waits may be longer, so the store is asked again.
func TestWaitsAfterAReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCorrectedStore(t, 9)
		c.denials = denycache.New(time.Minute, time.Now(), true, 10)
		c.take(1, store.ModeCharge)
		time.Sleep(10 * time.Second)
		c.take(7, store.ModeCharge)
		second := time.Now()
		if _, a, _ := c.take(2, store.ModeCharge); a.Retry != time.Hour-10*time.Second {
			t.Fatalf("%+v, want a wait for the first unit", a)
		}
		c.conn.down(refuses)
		if _, a, from := c.take(1, store.ModeCharge); !a.Allowed || from != event.Local {
			t.Fatal(a, from)
		}
		c.conn.up(0)
		time.Sleep(10 * time.Second)
		if _, a, _ := c.take(2, store.ModeCharge); a.Retry != time.Hour-time.Since(second) {
			t.Errorf("%+v, want a wait for one of the next units", a)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// heldStore holds the answers to takes back.
type heldStore struct {
	*faultyStore

	hold func()
}

func (s heldStore) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	err := s.faultyStore.Take(ctx, takes, answers)
	s.hold()
	return err
}

// A denial that was under way when units were given back is not remembered, so in an outage the local log decides.
func TestDenialUnderWayBeforeOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCorrectedStore(t, 1)
		held := heldStore{c.conn, func() {}}
		c.store.Store = &held
		first, _, _ := c.take(1, store.ModeCharge)
		arrives := make(chan struct{})
		held.hold = func() { <-arrives }
		go c.take(1, store.ModeCharge)
		synctest.Wait()
		c.settle(first, 0, false)
		close(arrives)
		synctest.Wait()
		c.conn.down(refuses)
		if _, a, from := c.take(1, store.ModeCharge); !a.Allowed || from != event.Local {
			t.Errorf("%+v from %d after the only unit was given back", a, from)
		}
		c.end(1)
	})
}

// A take that was undone does not change when the oldest unit leaves.
func TestUndoneTakesBesideAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCorrectedStore(t, 9)
		c.conn.down(loses)
		undone, _, _ := c.take(1, store.ModeCharge)
		time.Sleep(time.Minute / 2)
		c.conn.down(refuses)
		c.take(1, store.ModeCharge)
		c.settle(undone, 0, true)
		time.Sleep(time.Minute / 2)
		l := c.record.lack(&store.Take{Key: c.key, Plan: c.plan, Cost: 1})
		if l.count != 2 {
			t.Fatalf("%d entries in the backlog, want the take that was undone and another", l.count)
		}
		if got, want := l.states[0], (store.State{Used: 1, Reset: time.Hour - time.Minute/2}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		c.end(1)
	})
}

// What was denied here and never sent is not replayed.
func TestDenialsThatWereNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCorrectedStore(t, 1)
		c.conn.down(refuses)
		for range failuresToOpen {
			c.take(1, store.ModePeek)
		}
		c.take(1, store.ModeCharge)
		for range 3 {
			if _, a, from := c.take(1, store.ModeCharge); a.Allowed || from != event.Local {
				t.Fatal(a, from)
			}
		}
		if n := c.record.entries.Load(); n != 1 {
			t.Errorf("%d entries to be replayed, want the one that was admitted", n)
		}
		c.end(1)
	})
}

// When the store answers the first replay after an outage, which is the breaker's probe, all others follow.
func TestReplaysFollowTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCorrectedStore(t, 1)
		c.conn.down(refuses)
		keys := make([]store.Key, 10)
		for i := range keys {
			keys[i] = store.NewKey("p", string(rune('a'+i)))
			c.key = keys[i]
			if _, a, from := c.take(1, store.ModeCharge); !a.Allowed || from != event.Local {
				t.Fatal(a, from)
			}
		}
		const call = retryStore / 10
		c.conn.up(call)
		for c.record.entries.Load() == int64(len(keys)) {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(len(keys)/maxReplays+2) * call)
		if n := c.record.entries.Load(); n != 0 {
			t.Errorf("%d keys were not replayed with the first one", n)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// deadNode is a store of which one node does not answer: that of the keys that begin with "dead". While all are down,
// no other one does.
type deadNode struct {
	*faultyStore

	all atomic.Bool
}

func (n *deadNode) fails(key *store.Key) error {
	if n.all.Load() || strings.HasPrefix(key.Text, "dead") {
		return errFault
	}
	return nil
}

func (n *deadNode) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	return cmp.Or(n.fails(&takes[0].Key), n.faultyStore.Take(ctx, takes, answers))
}

func (n *deadNode) Merge(ctx context.Context, m store.MergeRequest) error {
	return cmp.Or(n.fails(&m.Key), n.faultyStore.Merge(ctx, m))
}

// withDeadNode calls f after an outage in which a guard of a deadNode was asked for a unit of each key and of fifty of
// that node. take asks for another one and reports whether the store has answered.
func withDeadNode(t *testing.T, keys []string, f func(logs *sharedLogs, take func(key string) bool)) {
	synctest.Test(t, func(*testing.T) {
		n := &deadNode{faultyStore: newSharedLogs().connect()}
		g := New(Config{Store: n, Policy: "p", Failure: Local, Timeout: time.Second, LocalKeys: 1000})
		defer g.Close() // which says what was not replayed
		plan := planOf(1000, time.Hour)
		take := func(key string) bool {
			t := &store.Take{Key: store.NewKey("p", key), Plan: plan, Cost: 1, Mode: store.ModeCharge}
			_, err := g.takeOne(context.Background(), t, new(store.Answer))
			return err == nil
		}
		n.all.Store(true)
		for i := range 50 {
			take(fmt.Sprint("dead ", i))
		}
		for _, key := range keys {
			take(key)
		}
		n.all.Store(false)
		f(n.sharedLogs, take)
	})
}

// Replays to a node that does not answer keep no requests from finding out that the others do.
func TestReplaysToADeadNodeLeaveProbesToRequests(t *testing.T) {
	withDeadNode(t, nil, func(_ *sharedLogs, take func(string) bool) {
		const requests = 100
		answered := 0
		for range requests {
			time.Sleep(3 * time.Second) // so that many replays come in between
			if take("k") {
				answered++
			}
		}
		if answered < requests*3/4 {
			t.Errorf("the store has answered %d of %d requests", answered, requests)
		}
	})
}

// What the other nodes lack is replayed without a request, although one node does not answer.
func TestReplaysBesideADeadNode(t *testing.T) {
	keys := strings.Split("abcdefghij", "")
	withDeadNode(t, keys, func(logs *sharedLogs, _ func(string) bool) {
		time.Sleep(50 * time.Minute)
		for _, name := range keys {
			if key := store.NewKey("p", name); len(logs.logs.Log(&key, time.Hour)) != 1 {
				t.Errorf("key %s was not replayed", name)
			}
		}
	})
}

// last returns what the store was asked last, for the function of faults, during which the store is locked.
func (s *sharedLogs) last() string { return s.calls[len(s.calls)-1] }

// waitFor waits until the store was asked so often.
func (c *correctedStore) waitFor(call string, times int) (calls string) {
	for strings.Count(calls, call) < times {
		time.Sleep(time.Second / 10)
		calls += c.logs.asked() + ", "
	}
	return calls
}

// A key is reset after its replay, which would add entries otherwise.
func TestResetDuringReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCorrectedStore(t, 9)
		c.conn.down(refuses)
		c.take(2, store.ModeCharge)
		c.conn.up(time.Second / 2)
		c.waitFor("merge", 1)
		c.conn.up(0)
		if err := c.Reset(t.Context(), c.key); err != nil {
			t.Error(err)
		}
		c.end(0)
	})
}

// What was added to the store is not added again when the store could not be told its cost.
func TestMergedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCorrectedStore(t, 9)
		c.conn.down(refuses)
		take, _, _ := c.take(2, store.ModeCharge)
		c.settle(take, 1, true)
		c.logs.asked()
		c.conn.faults(func() fault {
			if c.logs.last() == "settle" {
				return refuses
			}
			return answers
		})
		if calls := c.waitFor("settle", 3); strings.Count(calls, "merge") != 1 {
			t.Errorf("the store was asked %s want one merge", calls)
		}
		c.end(1)
	})
}

// A grant of the store that this process has replaced by a smaller one is told.
func TestGrantReplacedDuringReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCorrectedStore(t, 9)
		c.conn.down(refuses)
		c.take(6, store.ModeCharge)
		c.conn.faults(func() fault {
			if c.logs.last() == "merge" {
				return late
			}
			return answers
		})
		if _, a, from := c.take(5, store.ModeUpTo); a.Granted != 3 || from != event.Local {
			t.Errorf("%+v from %d, want a grant of 3 units by this process", a, from)
		}
		c.end(9)
	})
}

// A client whose requests are denied while the store hangs does not fill the memory.
func TestCorrectionsAreBounded(t *testing.T) {
	testlen.SkipRace(t)
	synctest.Test(t, func(t *testing.T) {
		c := newCorrectedStore(t, 1)
		for id := range uint64(maxCorrections + 10) {
			take := &store.Take{Key: c.key, Plan: c.plan, Cost: 1, ID: id + 1}
			c.record.note(take, &store.Answer{}, false, unconfirmed)
		}
		if n := c.record.entries.Load(); n != maxCorrections {
			t.Errorf("%d entries, want %d", n, maxCorrections)
		}
		c.end(0)
	})
}

// An entry counts in the windows of its limits only, however long it is kept for others.
func TestEntriesThatHaveLeftAnAnswersWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCorrectedStore(t, 9)
		c.plan = store.NewPlan(store.Plan{Limits: []store.Limit{
			{Quota: 2, Window: time.Minute}, {Quota: 2, Window: time.Hour},
		}})
		c.conn.down(refuses)
		take, _, _ := c.take(2, store.ModeCharge)
		time.Sleep(time.Minute)
		l := c.record.lack(take)
		if l.states[0] != (store.State{}) || l.states[1] != (store.State{Used: 2, Reset: 59 * time.Minute}) {
			t.Errorf("%+v, want two units in the second window", l.states[:2])
		}
		c.end(2)
	})
}

// Close waits for replays under way.
func TestCloseDuringReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCorrectedStore(t, 9)
		c.conn.down(refuses)
		c.take(2, store.ModeCharge)
		c.conn.up(time.Second / 2)
		c.waitFor("merge", 1)
		if err := c.Close(); err != nil || c.units(c.logs.logs) != 2 {
			t.Errorf("%v, and %d units in the store, want 2", err, c.units(c.logs.logs))
		}
	})
}

// planOf returns a plan of one limit.
func planOf(quota int, window time.Duration) *store.Plan {
	return store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: quota, Window: window}}})
}
