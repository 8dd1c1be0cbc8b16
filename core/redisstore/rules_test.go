package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/internal/definition"
	"github.com/sashlimit/sash/core/internal/redisserver"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
)

// tester asks a store about one key.
type tester struct {
	*testing.T
	definition.Clocked
	store.Full

	rdb *redis.Client
	key store.Key
	id  uint64
}

func newTester(t *testing.T, twice bool) *tester {
	t.Helper()
	rdb := start(t)
	clocked := clocked(rdb, twice, redisstore.WithOneServer())(t)
	full, _ := clocked.Store.(store.Full)
	return &tester{T: t, Clocked: clocked, Full: full, rdb: rdb, key: store.NewKey("test", "k")}
}

func sliding(quota int, window time.Duration) *store.Limit {
	return &store.Limit{Log: "log." + window.String(), Quota: quota, Window: window}
}

// stored is the name of a log in Redis.
func (t *tester) stored(l *store.Limit) string { return "sash:{" + t.key.String() + "}:" + l.Log }

func (t *tester) ok(err error) {
	t.Helper()
	must(t.T, err)
}

// must ends the test if there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// take asks about limits with a new ID.
func (t *tester) take(mode store.Mode, cost int, limits ...*store.Limit) []store.Answer {
	t.Helper()
	t.id++
	return t.again(mode, cost, limits...)
}

// again asks with the latest ID.
func (t *tester) again(mode store.Mode, cost int, limits ...*store.Limit) []store.Answer {
	t.Helper()
	takes, answers := make([]store.Take, len(limits)), make([]store.Answer, len(limits))
	for i, l := range limits {
		takes[i] = store.Take{Key: t.key, Limit: l, Cost: cost, ID: t.id, Mode: mode}
	}
	t.ok(t.Store.Take(t.Context(), takes, answers))
	return answers
}

func (t *tester) used(l *store.Limit) int {
	t.Helper()
	return t.take(store.ModePeek, 1, l)[0].Used
}

func (t *tester) want(what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// Rule 1. A wrong number of units, whatever has made it, is corrected where it shows, and no denial goes on for ever.
func TestUnitsAreCountedAnew(t *testing.T) {
	x := newTester(t, false)
	l := sliding(10, time.Minute)
	for _, wrong := range []int{-9, 4, 11, 1000} {
		x.ok(x.Reset(t.Context(), x.key, []*store.Limit{l}, 0))
		x.take(store.ModeCharge, 3, l)
		x.take(store.ModeCharge, 2, l)
		x.ok(x.rdb.ZAdd(t.Context(), x.stored(l), redis.Z{Score: -float64(wrong)}).Err())
		x.take(store.ModeCharge, 10, l)
		x.take(store.ModeChargeDenied, 10, l)
	}
	// A plain log whose expired entries were removed blindly, and which has costs.
	x.ok(x.Reset(t.Context(), x.key, []*store.Limit{l}, 0))
	x.take(store.ModeCharge, 2, l)
	x.Advance(time.Minute)
	x.take(store.ModeCharge, 3, l)
	x.want("used", x.used(l), 3)
}

// Rule 2. What has expired never counts; peeks and denials write nothing, and takes do not remove all at once.
func TestExpiredEntries(t *testing.T) {
	x := newTester(t, false)
	for _, cost := range []int{1, 2} {
		l := sliding(20_000, time.Minute+time.Duration(cost)*time.Microsecond)
		m := store.MergeRequest{Key: x.key, Limit: l}
		for n := range 6000 {
			m.Entries = append(m.Entries, store.Entry{ID: uint64(1000*cost*10 + n), Cost: cost, Age: time.Duration(n)})
		}
		x.ok(x.Merge(t.Context(), m))
		x.Advance(time.Minute - time.Second)
		x.take(store.ModeCharge, cost, l)
		x.Advance(2 * time.Second)
		before := x.rdb.Dump(t.Context(), x.stored(l)).Val()
		a := x.take(store.ModePeek, cost, l)[0]
		x.want("used in a peek", a.Used, cost)
		x.want("reset in a peek", a.Reset, l.Window-2*time.Second)
		if a = x.take(store.ModeCharge, 20_001, l)[0]; a.Allowed || a.Used != cost {
			t.Errorf("%+v, want a denial with %d used", a, cost)
		}
		if x.rdb.Dump(t.Context(), x.stored(l)).Val() != before && cost == 1 {
			t.Error("a peek or a denial has written to a log of units")
		}
		x.take(store.ModeCharge, cost, l)
		x.want("used", x.used(l), 2*cost)
		if left := x.rdb.ZCard(t.Context(), x.stored(l)).Val(); cost == 1 && left != 4002 || cost == 2 && left != 3 {
			t.Errorf("%d members are left", left)
		}
	}
}

// Many expired entries are no part of what a counted denial leaves.
func TestDenialBehindExpiredEntries(t *testing.T) {
	x := newTester(t, false)
	l := sliding(3, time.Minute)
	m := store.MergeRequest{Key: x.key, Limit: l}
	for n := range uint64(12_000) {
		m.Entries = append(m.Entries, store.Entry{ID: 1000 + n, Cost: 1, Age: time.Minute - time.Second})
	}
	x.ok(x.Merge(t.Context(), m))
	for range 3 {
		x.Advance(time.Second)
		x.take(store.ModeRecord, 1, l)
	}
	x.Advance(time.Second)
	a := x.take(store.ModeChargeDenied, 1, l)[0]
	if a.Allowed || a.Used != 3 || a.Retry != time.Minute-2*time.Second {
		t.Errorf("%+v", a)
	}
	x.want("used", x.used(l), 3)
}

// Rule 3. A settlement finds a take whatever it has cost, and leaves one entry of a take that was executed twice.
func TestSettleSearches(t *testing.T) {
	x := newTester(t, true)
	l := sliding(100, time.Minute)
	a := x.take(store.ModeAtMost, 60, l)[0] // 60 first, then 40
	s := store.Settlement{Key: x.key, Limit: l, ID: x.id, Was: 7, Cost: 5}
	x.want("used", x.used(l), 100)
	x.ok(x.Settle(t.Context(), s))
	x.want("used after a settlement by search", x.used(l), 5)
	s.Was, s.Cost = a.Granted, 0
	x.ok(x.Settle(t.Context(), s))
	x.want("used after one to 0 with a wrong cost", x.used(l), 0)
	x.take(store.ModeCharge, 3, l)
	s.ID, s.Was = x.id, 2
	x.Advance(10 * time.Second)
	s.Age = 7 * time.Second
	x.ok(x.Settle(t.Context(), s))
	x.want("used after one of another age", x.used(l), 3)
	s.Age = 9 * time.Second
	x.ok(x.Settle(t.Context(), s))
	x.want("used after one of nearly the right age", x.used(l), 0)
}

// Rule 4. A caller that leaves hears when its take has ended, which is then recorded.
func TestLeftTake(t *testing.T) {
	server := redisserver.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: time.Minute})
	t.Cleanup(func() { rdb.Close() })
	begins := make(begins, 100)
	rdb.AddHook(begins)
	s, l, key := redisstore.New(rdb), sliding(1, time.Hour), store.NewKey("test", "k")
	take := func(ctx context.Context) error {
		takes := []store.Take{{Key: key, Limit: l, Cost: 1, ID: 7}}
		return s.Take(ctx, takes, make([]store.Answer, 1))
	}
	must(t, take(t.Context())) // so that there is a connection
	must(t, s.Reset(t.Context(), key, []*store.Limit{l}, 0))
	server.Pause()
	var left *store.LeftError
	if err := take(begins.cancels(t.Context(), key)); !errors.As(err, &left) {
		t.Fatalf("%v, want a LeftError", err)
	}
	server.Resume()
	ended := make(chan struct{})
	left.Then(func() { close(ended) })
	<-ended
	if entries, err := s.(store.Lister).Log(t.Context(), key, l); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v, want one entry", entries, err)
	}
}

// Rule 6. A settlement that is executed again changes nothing, and those that follow build on it.
func TestCountersAreSettledOnce(t *testing.T) {
	x := newTester(t, true)
	for _, l := range definition.Limits(1000, time.Hour)[1:] {
		x.take(store.ModeCharge, 1, l)
		before := x.used(l) // the take was executed twice, too
		answer := x.take(store.ModeCharge, 100, l)[0]
		counted := x.used(l) - before
		s := store.Settlement{Key: x.key, Limit: l, ID: x.id, Was: 100, Period: answer.Period}
		for _, step := range []struct{ was, cost int }{{100, 30}, {100, 30}, {30, 50}, {50, 30}, {30, 50}, {50, 0}} {
			s.Was, s.Cost = step.was, step.cost
			x.ok(x.Settle(t.Context(), s))
			x.want(fmt.Sprint(l.Algorithm, " settled to ", step.cost), x.used(l), before+counted-100+step.cost)
		}
		witnesses := x.rdb.Keys(t.Context(), x.stored(l)+":*").Val()
		const long = time.Hour + 20*time.Second // as a command may be sent again; the clock gives keys an hour more
		if len(witnesses) != 1 || x.rdb.PTTL(t.Context(), witnesses[0]).Val() < long {
			t.Errorf("witnesses %q, want one that lasts %v", witnesses, long)
		}
	}
}

// After the clock was set back, a denial writes the counter as one of now: there is room when its wait has ended.
func TestCountersAfterTheClockWasSetBack(t *testing.T) {
	rdb := start(t)
	for _, l := range definition.Limits(10, time.Hour)[1:] {
		for _, back := range []time.Duration{time.Minute, 3 * time.Hour, 240 * time.Hour} {
			x := &tester{T: t, Clocked: clocked(rdb, false)(t), rdb: rdb, key: store.NewKey("test", "k")}
			x.take(store.ModeCharge, 10, l)
			x.Advance(-back)
			denied := x.take(store.ModeCharge, 1, l)[0]
			x.Advance(denied.Retry)
			if a := x.take(store.ModeCharge, 1, l)[0]; !a.Allowed {
				t.Errorf("%v, set back by %v: %+v, and after the wait %+v", l.Algorithm, back, denied, a)
			}
		}
	}
}

// Rule 8. When the clock was set back, a denial looks at the newest entry: no log stays full of what is in the future.
func TestDenialLooksAtTheNewestEntry(t *testing.T) {
	rdb := start(t)
	l := sliding(10, 10*time.Second)
	permits := &store.Limit{Log: "permits", Quota: 10, Window: 10 * time.Second, Permits: true}
	other := sliding(100, time.Minute)
	for name, c := range map[string]struct {
		limits []*store.Limit
		costs  []int // recorded at once, and then after 9 s; asked for after the clock was set back by 9 s
		mode   store.Mode
	}{
		"unit":     {[]*store.Limit{l}, []int{1, 1, 1}, store.ModeCharge},
		"cost":     {[]*store.Limit{l}, []int{1, 9, 2}, store.ModeCharge},
		"list":     {[]*store.Limit{l, other}, []int{1, 3, 3}, store.ModeCharge},
		"at most":  {[]*store.Limit{l}, []int{2, 8, 8}, store.ModeAtMost},
		"denied":   {[]*store.Limit{l}, []int{1, 9, 9}, store.ModeChargeDenied},
		"permits":  {[]*store.Limit{permits}, []int{1, 1, 1}, store.ModeAtMost},
		"a stream": {[]*store.Limit{l}, []int{1, 1, 1}, store.ModeCharge},
	} {
		t.Run(name, func(t *testing.T) {
			newStore := clocked(rdb, false, redisstore.WithOneServer())
			if name == "a stream" {
				newStore = streams(rdb, false)
			}
			x := &tester{T: t, Clocked: newStore(t), rdb: rdb, key: store.NewKey("test", "k")}
			x.take(store.ModeCharge, c.costs[0], c.limits...)
			x.Advance(9 * time.Second)
			for x.take(store.ModeCharge, c.costs[1], c.limits...)[0].Allowed {
				continue
			}
			x.Advance(-9 * time.Second)
			if a := x.take(c.mode, c.costs[2], c.limits...)[0]; !a.Allowed || a.Used > c.costs[0] {
				t.Errorf("%+v, want it admitted beside %d", a, c.costs[0])
			}
		})
	}
}

// Rules 7 and 9. A denial that was counted stays one, and a group that is executed twice is recorded once.
func TestGroupsTwice(t *testing.T) {
	x := newTester(t, true)
	l := sliding(4, time.Minute)
	x.take(store.ModeCharge, 3, l)
	x.want("denied", x.take(store.ModeChargeDenied, 2, l)[0].Allowed, false)
	x.Advance(time.Minute - time.Microsecond)
	x.ok(x.Settle(t.Context(), store.Settlement{
		Key: x.key, Limit: l, ID: 1, Was: 3, Age: time.Minute - time.Microsecond,
	}))
	x.want("denied again", x.again(store.ModeChargeDenied, 2, l)[0].Allowed, false)

	x.Advance(time.Hour)
	var all sync.WaitGroup
	var mu sync.Mutex
	admitted := 0
	for id := range uint64(200) {
		all.Go(func() {
			var answers [1]store.Answer
			err := x.Take(t.Context(), []store.Take{{Key: x.key, Limit: l, Cost: 1, ID: 1000 + id}}, answers[:])
			mu.Lock()
			defer mu.Unlock()
			if answers[0].Allowed && err == nil {
				admitted++
			} else if err != nil || answers[0].Used != 4 || answers[0].Retry != time.Minute {
				t.Errorf("%+v, %v", answers[0], err)
			}
		})
	}
	all.Wait()
	x.want("admitted", admitted, 4)
	x.want("used", x.used(l), 4)
}

// Rule 10. No key is without a TTL: a user who may not set one records nothing.
func TestNoKeyWithoutTTL(t *testing.T) {
	rdb := start(t)
	must(t, rdb.Do(t.Context(), "ACL", "SETUSER", "default", "-pexpire").Err())
	s := redisstore.New(rdb)
	key, l, other := store.NewKey("test", "k"), sliding(9, time.Minute), sliding(9, time.Hour)
	for n, limits := range [][]*store.Limit{{l}, {l, other}} {
		for cost := 1; cost <= 2; cost++ {
			takes := make([]store.Take, len(limits))
			for i := range limits {
				takes[i] = store.Take{Key: key, Limit: limits[i], Cost: cost, ID: uint64(10*n + cost)}
			}
			var failed *store.StoreError
			err := s.Take(t.Context(), takes, make([]store.Answer, len(takes)))
			if !errors.As(err, &failed) || failed.Class != redisstore.ClassAuth {
				t.Errorf("%v, want class auth", err)
			}
		}
	}
	full, _ := s.(store.Full)
	m := store.MergeRequest{Key: key, Limit: l, Entries: []store.Entry{{ID: 7, Cost: 1}}}
	if full.Merge(t.Context(), m) == nil {
		t.Error("Merge has no error")
	}
	if full.Renew(t.Context(), store.Renewal{Key: key, Limit: l, IDs: []uint64{1}}) == nil {
		t.Error("Renew has no error")
	}
	if keys := rdb.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("keys %q", keys)
	}
}

// Rule 11. On several servers, a denial gives back what others have recorded; an error is returned, and so may be known
// what was recorded.
func TestInTurnGivesBack(t *testing.T) {
	rdb := start(t)
	full, _ := clocked(rdb, false)(t).Store.(store.Full)
	first, second := store.NewKey("test", "first"), store.NewKey("test", "second")
	l := sliding(3, time.Minute)
	counter := &store.Limit{Log: "counter", Quota: 2, Window: time.Hour, Algorithm: store.FixedWindow}
	id := uint64(0)
	ask := func(mode store.Mode, cost int, takes ...store.Take) []store.Answer {
		t.Helper()
		id++
		for i := range takes {
			takes[i].ID, takes[i].Mode, takes[i].Cost = id, mode, cost
		}
		answers := make([]store.Answer, len(takes))
		must(t, full.Take(t.Context(), takes, answers))
		return answers
	}
	used := func(key store.Key, l *store.Limit, want int) {
		t.Helper()
		if a := ask(store.ModePeek, 1, store.Take{Key: key, Limit: l})[0]; a.Used != want {
			t.Errorf("%s: %d used, want %d", l.Log, a.Used, want)
		}
	}
	ask(store.ModeCharge, 2, store.Take{Key: second, Limit: l})
	a := ask(store.ModeCharge, 2, store.Take{Key: first, Limit: l}, store.Take{Key: second, Limit: l})
	if !a[0].Allowed || a[1].Allowed {
		t.Errorf("%+v", a)
	}
	used(first, l, 0)
	// The key with a counter comes last, and so is not asked.
	a = ask(store.ModeCharge, 2, store.Take{Key: first, Limit: counter}, store.Take{Key: second, Limit: l})
	if a[0].Known || a[1].Allowed {
		t.Errorf("%+v", a)
	}
	a = ask(store.ModeAtMost, 9, store.Take{Key: first, Limit: l}, store.Take{Key: second, Limit: l})
	if a[0].Granted != 1 || a[1].Granted != 1 {
		t.Errorf("%+v", a)
	}
	used(first, l, 1)
	used(second, l, 3)
	other := store.NewKey("test", "other")
	a = ask(store.ModeAtMost, 9, store.Take{Key: other, Limit: counter}, store.Take{Key: first, Limit: l})
	if a[0].Granted != 2 || a[1].Granted != 2 {
		t.Errorf("%+v", a)
	}

	// The server of the second key is in trouble.
	must(t, rdb.Set(t.Context(), "sash:{"+second.String()+"}:"+l.Log, "x", time.Minute).Err())
	third := store.NewKey("test", "third")
	takes := []store.Take{{Key: third, Limit: l, Cost: 1, ID: 99}, {Key: second, Limit: l, Cost: 1, ID: 99}}
	if err := full.Take(t.Context(), takes, make([]store.Answer, 2)); err == nil {
		t.Error("no error")
	}
	used(third, l, 0)
}

// Rule 12. Numbers are exact for all quotas and windows.
func TestRepliesAreExact(t *testing.T) {
	x := newTester(t, false)
	const year = 365 * 24 * time.Hour
	for n, l := range []*store.Limit{
		sliding(store.MaxQuota, year), sliding(285, year), sliding(286, year), sliding(store.MaxQuota, 9*time.Second),
		sliding(store.MaxQuota, 10*time.Second),
	} {
		l.Log += fmt.Sprint(".", n)
		second, third := *l, *l
		second.Log, third.Log = l.Log+".2", l.Log+".3"
		for _, limits := range [][]*store.Limit{{l}, {&second, &third}} {
			for _, cost := range []int{l.Quota - 2, 1, 1} {
				if a := x.take(store.ModeCharge, cost, limits...)[0]; !a.Allowed || a.Reset != l.Window {
					t.Errorf("%v: %+v", l, a)
				}
			}
			a := x.take(store.ModeCharge, 1, limits...)[0]
			if a.Allowed || a.Used != l.Quota || a.Retry != l.Window {
				t.Errorf("%v: %+v", l, a)
			}
		}
	}
	slow := &store.Limit{Log: "b", Quota: store.MaxQuota, Window: year, Refill: 1, Algorithm: store.TokenBucket}
	if x.Validate(slow) == nil {
		t.Error("a bucket of centuries is valid")
	}
}

// One hot key is one question with many ids.
func TestHotKeyIsOneQuestion(t *testing.T) {
	rdb := start(t)
	s, l := redisstore.New(rdb), sliding(1000, time.Hour)
	var all sync.WaitGroup
	for id := range uint64(1000) {
		all.Go(func() {
			takes := []store.Take{{Key: store.NewKey("test", "k"), Limit: l, Cost: 1, ID: id + 1}}
			if err := s.Take(t.Context(), takes, make([]store.Answer, 1)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	stats := rdb.Info(t.Context(), "commandstats").Val()
	var zadds int
	_, found, _ := strings.Cut(stats, "cmdstat_zadd:calls=")
	if n, err := fmt.Sscanf(found, "%d", &zadds); n != 1 || zadds > 500 {
		t.Errorf("%d ZADDs for 1,000 takes (%v)", zadds, err)
	}
	if n := rdb.ZCard(t.Context(), "sash:{"+store.NewKey("test", "k").String()+"}:"+l.Log).Val(); n != 1000 {
		t.Errorf("%d entries", n)
	}
}
