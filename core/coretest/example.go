package coretest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// examples are the cases that show what a store must do.
var examples = []struct {
	name  string
	costs bool // takes cost more than one unit
	run   func(*example)
}{
	{"ClassicSequence", false, classicSequence},
	{"ExactBoundary", false, exactBoundary},
	{"KeysApart", false, keysApart},
	{"AllOrNothing", true, allOrNothing},
	{"CostAboveQuota", true, costAboveQuota},
	{"LargeQuota", true, largeQuota},
	{"Peek", false, peek},
	{"Record", true, record},
	{"ChargeDenied", true, chargeDenied},
	{"AtMost", true, atMost},
	{"Settle", true, settle},
	{"SettleFixedWindow", true, settlePeriod(store.FixedWindow)},
	{"SettleSlidingCounter", true, settlePeriod(store.SlidingCounter)},
	{"SettleTokenBucket", true, settlePeriod(store.TokenBucket)},
	{"SettleEmptyBucket", true, settleBucket},
	{"Calendar", false, calendar},
	{"Log", true, listLog},
	{"Merge", true, merge},
	{"Permits", false, permits},
	{"Reset", false, reset},
	{"InvalidTakes", false, invalidTakes},
	{"Overrides", false, storedOverrides},
	{"TooManyOverrides", false, tooManyOverrides},
	{"Concurrent", false, concurrent},
}

// example is a store, and the log that most cases ask.
type example struct {
	*testing.T
	Clocked
	*StoreConfig

	key store.Key
	id  uint64 // of the last take
}

func newExample(t *testing.T, c *StoreConfig) *example {
	return &example{T: t, Clocked: c.New(t), StoreConfig: c, key: store.NewKey("example", "k")}
}

// sliding returns a limit on the only log of its window.
func sliding(quota int, window time.Duration) *store.Limit {
	return &store.Limit{Log: window.String(), Quota: quota, Window: window}
}

// need skips the test unless the store can decide about these limits in one request.
func (e *example) need(limits ...*store.Limit) {
	e.Helper()
	if err := e.Store.Validate(limits...); err != nil {
		e.Skip(err)
	}
}

// optional returns the store as one with optional methods, or skips the test.
func optional[I any](e *example, name string) I {
	e.Helper()
	able, ok := e.Store.(I)
	if !ok {
		e.Skipf("the store is no %s", name)
	}
	return able
}

func (e *example) noError(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// takes asks several logs. When the store has returned, the arguments are overwritten, to find stores that still use
// them.
func (e *example) takes(takes ...store.Take) []store.Answer {
	e.Helper()
	e.id++
	answers := make([]store.Answer, len(takes))
	for i := range takes {
		takes[i].ID = e.id
		if takes[i].Key.Namespace == nil {
			takes[i].Key = e.key
		}
	}
	e.noError(e.Store.Take(e.Context(), takes, answers))
	got := slices.Clone(answers)
	for i := range takes {
		takes[i] = store.Take{Key: store.NewKey("spoiled", ""), Limit: takes[i].Limit, Cost: math.MaxInt32, ID: 1}
		answers[i] = store.Answer{}
	}
	for i := range got {
		got[i].Period = 0
	}
	return got
}

func (e *example) take(l *store.Limit, mode store.Mode, cost int) store.Answer {
	e.Helper()
	return e.takes(store.Take{Limit: l, Mode: mode, Cost: cost})[0]
}

// admits and denies charge a cost.
func (e *example) admits(l *store.Limit, cost, used int) {
	e.Helper()
	if a := e.take(l, store.ModeCharge, cost); !a.Allowed || a.Used != used || a.Retry != 0 {
		e.Errorf("%d of %v: %+v; want it admitted after %d", cost, l, a, used)
	}
}

func (e *example) denies(l *store.Limit, cost, used int, retry time.Duration) {
	e.Helper()
	if a := e.take(l, store.ModeCharge, cost); a.Allowed || a.Used != used || a.Retry != retry {
		e.Errorf("%d of %v: %+v; want it denied after %d, for %v", cost, l, a, used, retry)
	}
}

// used peeks.
func (e *example) used(l *store.Limit, want int) {
	e.Helper()
	if a := e.take(l, store.ModePeek, 1); a.Used != want {
		e.Errorf("%d units of %v are used, want %d", a.Used, l, want)
	}
}

// 5 in 10 s, a request a second for a minute: 5 pass, 5 do not, and so on. Denied ones are free: otherwise the sixth
// would keep the rest out.
func classicSequence(e *example) {
	l, admitted := sliding(5, 10*time.Second), 0
	for i := range 60 {
		a := e.take(l, store.ModeCharge, 1)
		if want := i%10 < 5; a.Allowed != want {
			e.Errorf("second %d: allowed %v, want %v", i, a.Allowed, want)
		}
		if a.Allowed {
			admitted++
		}
		e.Advance(time.Second)
	}
	if admitted != 30 {
		e.Errorf("%d of 60 admitted, want 30", admitted)
	}
}

func exactBoundary(e *example) {
	l := sliding(3, 1500*time.Millisecond)
	for i := range 3 { // all at the same instant
		e.admits(l, 1, i)
	}
	e.Advance(l.Window - time.Microsecond)
	e.denies(l, 1, 3, time.Microsecond)
	e.Advance(time.Microsecond)
	for i := range 3 {
		e.admits(l, 1, i)
	}
	e.denies(l, 1, 3, l.Window)
}

func keysApart(e *example) {
	minute, hour := sliding(1, time.Minute), sliding(1, time.Hour)
	texts := []string{"x", "y", "a:b", "a", "{x}", "}", "x\x00", "\r\n", "é", string(make([]byte, 8192))}
	for _, policy := range []string{"a", "b"} {
		for _, text := range texts {
			for _, l := range []*store.Limit{minute, hour} {
				e.key = store.NewKey(policy, text)
				e.admits(l, 1, 0)
				e.denies(l, 1, 1, l.Window)
			}
		}
	}
}

func allOrNothing(e *example) {
	hour, second := sliding(4, time.Hour), sliding(2, time.Second)
	e.need(hour, second)
	want := func(cost int, usedHour, usedSecond int, waitHour, waitSecond time.Duration) {
		e.Helper()
		a := e.takes(store.Take{Limit: hour, Cost: cost}, store.Take{Limit: second, Cost: cost})
		for i, want := range []store.Answer{
			{Known: true, Allowed: waitHour == 0, Used: usedHour, Retry: waitHour, Reset: a[0].Reset},
			{Known: true, Allowed: waitSecond == 0, Used: usedSecond, Retry: waitSecond, Reset: a[1].Reset},
		} {
			if a[i] != want {
				e.Errorf("cost %d, take %d: %+v, want %+v", cost, i, a[i], want)
			}
		}
	}
	want(1, 0, 0, 0, 0)
	e.Advance(400 * time.Millisecond)
	want(1, 1, 1, 0, 0)
	for range 10 { // the hour must not be charged for these
		want(1, 2, 2, 0, 600*time.Millisecond)
	}
	e.Advance(600 * time.Millisecond)
	want(2, 2, 1, 0, 400*time.Millisecond)
	e.Advance(400 * time.Millisecond)
	want(2, 2, 0, 0, 0)
	want(1, 4, 2, time.Hour-1400*time.Millisecond, time.Second)
}

func costAboveQuota(e *example) {
	l := sliding(5, time.Minute)
	e.take(l, store.ModeCharge, 1)
	if a := e.take(l, store.ModeCharge, 6); a.Allowed || a.Retry != 0 || a.Used != 1 {
		e.Errorf("6 of 5: %+v; want a denial without a wait", a)
	}
	e.admits(l, 4, 1)
}

func largeQuota(e *example) {
	l := sliding(store.MaxQuota, 365*24*time.Hour)
	const cost = store.MaxQuota / 10
	for i := range 10 {
		e.admits(l, cost, i*cost)
		e.Advance(time.Hour)
	}
	e.denies(l, cost, store.MaxQuota, l.Window-10*time.Hour)
	e.Advance(l.Window - 10*time.Hour)
	e.admits(l, cost, store.MaxQuota-cost)
}

func peek(e *example) {
	l := sliding(2, time.Minute)
	e.used(l, 0)
	e.used(l, 0)
	e.admits(l, 1, 0)
	e.Advance(time.Second)
	e.admits(l, 1, 1)
	if a := e.take(l, store.ModePeek, 1); a.Allowed || a.Retry != 59*time.Second || a.Reset != a.Retry {
		e.Errorf("a peek at a full log: %+v; want a denial of 59s", a)
	}
}

// What ModeRecord records beyond what a log keeps removes the oldest whole entries.
func record(e *example) {
	l := sliding(1, time.Hour)
	const cost = store.MaxRecorded / 4
	for i := range 6 {
		if a := e.take(l, store.ModeRecord, cost); !a.Allowed || a.Retry != 0 || a.Used != min(i, 4)*cost {
			e.Errorf("record %d: %+v; want it allowed after %d", i, a, min(i, 4)*cost)
		}
		e.Advance(time.Second)
	}
	e.used(l, 4*cost)
	e.denies(l, 1, 4*cost, time.Hour-time.Second)
	unlimited := *l
	unlimited.Unlimited = true
	e.admits(&unlimited, cost, 4*cost)
	e.used(l, 4*cost)
}

// A denial that is recorded removes the oldest entries while what is left is the quota or more.
func chargeDenied(e *example) {
	l := sliding(3, time.Hour)
	want := func(cost int, allowed bool, used int, retry time.Duration) {
		e.Helper()
		if a := e.take(l, store.ModeChargeDenied, cost); a.Allowed != allowed || a.Used != used || a.Retry != retry {
			e.Errorf("%+v, want allowed %v after %d, a wait of %v", a, allowed, used, retry)
		}
		e.Advance(time.Minute)
	}
	want(2, true, 0, 0)
	want(2, false, 2, time.Hour) // 4 units are used: those of the first entry leave, but 2 are too few
	e.used(l, 4)
	want(1, false, 4, 59*time.Minute) // the first entry leaves
	e.used(l, 3)
	want(4, false, 3, 0) // never fits
	e.used(l, 3)
}

func atMost(e *example) {
	l := sliding(5, time.Minute)
	want := func(cost, share, granted, used int, retry time.Duration) {
		e.Helper()
		a := e.takes(store.Take{Limit: l, Mode: store.ModeAtMost, Cost: cost, Share: share})[0]
		if a.Granted != granted || a.Allowed != (granted > 0) || a.Used != used || a.Retry != retry {
			e.Errorf("at most %d: %+v; want %d granted after %d, a wait of %v", cost, a, granted, used, retry)
		}
	}
	want(2, 0, 2, 0, 0)
	e.Advance(10 * time.Second)
	want(store.MaxQuota, 3, 1, 2, 0)
	want(store.MaxQuota, 0, 2, 3, 0)
	want(4, 0, 0, 5, 50*time.Second) // for one unit, though 4 need a minute
	e.Advance(50 * time.Second)
	want(9, 9, 1, 3, 0)

	least := sliding(3, time.Hour)
	if e.Store.Validate(l, least) != nil {
		return
	}
	for _, granted := range []int{1, 0} {
		take := store.Take{Limit: l, Mode: store.ModeAtMost, Cost: 7}
		other := take
		other.Limit = least
		for _, a := range e.takes(take, other) {
			if a.Granted != granted {
				e.Errorf("%+v, want %d granted", a, granted)
			}
		}
	}
	e.used(least, 1)
}

// Settle changes a take at its instant, and nothing else.
func settle(e *example) {
	settler := optional[store.Settler](e, "store.Settler")
	l := sliding(10, time.Minute)
	sent := map[uint64]time.Time{}
	change := func(id uint64, was, cost int) {
		e.Helper()
		s := store.Settlement{Key: e.key, Limit: l, ID: id, Was: was, Cost: cost, Age: e.Now().Sub(sent[id])}
		if sent[id].IsZero() {
			s.Age = 0
		}
		e.noError(settler.Settle(e.Context(), s))
	}
	change(1, 1, 1) // there is no log
	e.used(l, 0)
	e.admits(l, 6, 0)
	first := e.id
	sent[first] = e.Now()
	e.Advance(time.Second)
	e.admits(l, 2, 6)
	second := e.id
	sent[second] = e.Now()
	change(first, 6, 3)
	e.used(l, 5)
	change(first+1000, 1, 3) // was never recorded
	change(first, 5, 4)      // another cost than the caller believes
	e.used(l, 6)
	e.denies(l, 8, 6, 59*time.Second)
	change(second, 2, 0)
	e.used(l, 4)
	change(second, 2, 0)
	change(second, 0, 2) // was removed
	e.used(l, 4)
	e.denies(l, 8, 4, 59*time.Second)
	e.Advance(59 * time.Second)
	e.used(l, 0)
	change(first, 4, 9) // has left the window
	e.used(l, 0)
}

// counted is a take of an algorithm that counts, which is settled.
type counted struct {
	*example
	store.Settlement

	settler store.Settler
	sent    time.Time
}

// newCounted returns a limit of an algorithm, at the beginning of a period, or skips the test.
func newCounted(e *example, a store.Algorithm) *counted {
	c := &counted{example: e, settler: optional[store.Settler](e, "store.Settler")}
	c.Key = e.key
	c.Limit = &store.Limit{Log: fmt.Sprint("settled.", a), Quota: 10, Window: time.Minute, Algorithm: a}
	if a == store.TokenBucket {
		c.Limit.Refill = 6 // one in ten seconds
	}
	e.need(c.Limit)
	within := e.Now().UnixMicro() % c.Limit.Window.Microseconds()
	e.Advance(c.Limit.Window - time.Duration(within)*time.Microsecond)
	return c
}

func (c *counted) take(cost int) {
	answers := make([]store.Answer, 1)
	c.id++
	takes := []store.Take{{Key: c.Key, Limit: c.Limit, Cost: cost, ID: c.id}}
	c.noError(c.Store.Take(c.Context(), takes, answers))
	c.ID, c.Was, c.Period, c.sent = c.id, cost, answers[0].Period, c.Now()
}

// settle settles the take, and checks how many units are used then.
func (c *counted) settle(cost, used int) {
	c.Helper()
	c.Cost, c.Age = cost, c.Now().Sub(c.sent)
	c.noError(c.settler.Settle(c.Context(), c.Settlement))
	if c.Again {
		c.noError(c.settler.Settle(c.Context(), c.Settlement))
	}
	c.Was = cost
	c.used(c.Limit, used)
}

// What a take did not need goes back to its period, once.
func settlePeriod(a store.Algorithm) func(*example) {
	return func(e *example) {
		c := newCounted(e, a)
		c.take(8)
		c.settle(5, 5)
		c.settle(7, 7)
		e.Advance(3 * c.Limit.Window)
		e.used(c.Limit, 0)
		e.admits(c.Limit, 9, 0)
		c.settle(0, 9) // its period has ended
	}
}

// A take has never taken more from a bucket than this holds, and what has come back is not given back.
func settleBucket(e *example) {
	c := newCounted(e, store.TokenBucket)
	c.take(1)
	c.settle(100, 10)
	e.Advance(50 * time.Second)
	e.admits(c.Limit, 3, 5)
	c.settle(0, 3)
}

// A calendar's periods follow each other, whatever calendar a limiter has. What was taken in a period that has ended is
// not given back to a later one.
func calendar(e *example) {
	const minute = int64(time.Minute / time.Microsecond)
	first := (e.Now().UnixMicro()/minute + 1) * minute // when the first of four periods begins
	from := func(begin int64) *store.Limit {
		c := &store.Calendar{begin, begin + minute, begin + 2*minute, begin + 3*minute}
		return &store.Limit{Log: "calendar", Quota: 2, Window: time.Minute, Algorithm: store.FixedWindow, Calendar: c}
	}
	e.need(from(first))
	to := func(instant int64) { e.Advance(time.Duration(instant-e.Now().UnixMicro()) * time.Microsecond) }
	to(first + minute - 1)
	e.admits(from(first), 1, 0)
	e.admits(from(first-minute), 1, 1)
	e.denies(from(first), 1, 2, time.Microsecond)
	to(first + minute)
	last := from(first - minute)
	answers := make([]store.Answer, 1)
	e.id++
	e.noError(e.Store.Take(e.Context(), []store.Take{{Key: e.key, Limit: last, Cost: 1, ID: e.id}}, answers))
	s := store.Settlement{Key: e.key, Limit: last, ID: e.id, Was: 1, Age: 2 * time.Minute, Period: answers[0].Period}
	to(first + 3*minute)
	e.admits(from(first+2*minute), 1, 0)
	if settler, ok := e.Store.(store.Settler); ok {
		e.noError(settler.Settle(e.Context(), s))
	}
	e.admits(from(first+3*minute), 1, 1)
	e.denies(from(first+3*minute), 1, 2, time.Minute)
}

// listLog lists what is in the window, oldest first.
func listLog(e *example) {
	lister := optional[store.Lister](e, "store.Lister")
	l := sliding(10, time.Minute)
	began := e.Now()
	want := func(costs ...int) {
		e.Helper()
		entries, err := lister.Log(e.Context(), e.key, l)
		e.noError(err)
		got := make([]int, 0, len(entries))
		for _, entry := range entries {
			got = append(got, entry.Cost)
			if at := began.Add(time.Duration(entry.Cost) * 10 * time.Second); entry.At.UnixMicro() != at.UnixMicro() {
				e.Errorf("the entry of %d units is at %v, want %v", entry.Cost, entry.At, at)
			}
		}
		if !slices.Equal(got, costs) {
			e.Errorf("costs %v, want %v", got, costs)
		}
	}
	want()
	for cost := 1; cost <= 3; cost++ {
		e.Advance(10 * time.Second)
		e.take(l, store.ModeCharge, cost)
	}
	want(1, 2, 3)
	e.Advance(40*time.Second - time.Microsecond)
	want(1, 2, 3)
	e.Advance(time.Microsecond)
	want(2, 3)
}

// Merge adds entries once, at their instants, and settles those that are there.
func merge(e *example) {
	merger := optional[store.Merger](e, "store.Merger")
	l := sliding(10, time.Hour)
	e.admits(l, 2, 0)
	m := store.MergeRequest{Key: e.key, Limit: l, Entries: []store.Entry{
		{ID: 1001, Age: 20 * time.Minute, Cost: 4},
		{ID: 1002, Age: 2 * time.Hour, Cost: 4}, // has left the window
		{ID: e.id, Cost: 3, Sent: 2},
	}}
	for range 2 {
		e.noError(merger.Merge(e.Context(), m))
		e.used(l, 7)
	}
	e.Advance(40*time.Minute - time.Microsecond)
	e.used(l, 7)
	e.Advance(time.Microsecond)
	e.used(l, 3)
}

// Permits count one, whatever they cost, and are there until they are given back or not renewed for a window.
func permits(e *example) {
	renewer := optional[store.Renewer](e, "store.Renewer")
	settler := optional[store.Settler](e, "store.Settler")
	l := &store.Limit{Log: "permits", Quota: 2, Window: time.Minute, Permits: true}
	e.admits(l, 7, 0)
	first := e.id
	e.admits(l, 7, 1)
	second := e.id
	e.denies(l, 7, 2, time.Minute)
	e.noError(settler.Settle(e.Context(), store.Settlement{Key: e.key, Limit: l, ID: first, Was: 1}))
	e.admits(l, 1, 1)
	e.Advance(40 * time.Second)
	e.noError(renewer.Renew(e.Context(), store.Renewal{Key: e.key, Limit: l, IDs: []uint64{second, first}}))
	e.denies(l, 1, 3, time.Minute) // one is there that was given back: its request runs
	e.Advance(20 * time.Second)
	e.used(l, 2)
	e.Advance(40 * time.Second)
	e.used(l, 0)
}

// Reset deletes the logs of limits, but for what is younger.
func reset(e *example) {
	minute, hour := sliding(5, time.Minute), sliding(5, time.Hour)
	for range 2 {
		e.take(minute, store.ModeCharge, 1)
		e.take(hour, store.ModeCharge, 1)
		e.Advance(time.Second)
	}
	e.noError(e.Store.Reset(e.Context(), e.key, []*store.Limit{minute}, 2*time.Second)) // the first is not younger
	e.used(minute, 1)
	e.used(hour, 2)
	e.noError(e.Store.Reset(e.Context(), e.key, []*store.Limit{minute, hour}, 0))
	e.used(minute, 0)
	e.used(hour, 0)
	e.noError(e.Store.Reset(e.Context(), store.NewKey("example", "nobody"), []*store.Limit{hour}, 0))
}

// Takes that are not those of one request are errors, and record nothing.
func invalidTakes(e *example) {
	l, other := sliding(5, time.Hour), sliding(5, time.Minute)
	valid := func() []store.Take {
		return []store.Take{{Key: e.key, Limit: l, Cost: 1, ID: 1}, {Key: e.key, Limit: other, Cost: 1, ID: 1}}
	}
	for what, change := range map[string]func(t *store.Take){
		"a zero key":   func(t *store.Take) { t.Key = store.Key{} },
		"no limit":     func(t *store.Take) { t.Limit = nil },
		"no cost":      func(t *store.Take) { t.Cost = 0 },
		"another ID":   func(t *store.Take) { t.ID = 2 },
		"another mode": func(t *store.Take) { t.Mode = store.ModeRecord },
		"one log":      func(t *store.Take) { t.Limit = l },
	} {
		takes := valid()
		change(&takes[1])
		err := e.Store.Take(e.Context(), takes, make([]store.Answer, 2))
		if !errors.As(err, new(*store.ConfigError)) {
			e.Errorf("%s: %v, want a ConfigError", what, err)
		}
	}
	if err := e.Store.Take(e.Context(), nil, nil); err == nil {
		e.Error("no takes: no error")
	}
	if err := e.Store.Take(e.Context(), valid()[:1], make([]store.Answer, 2)); err == nil {
		e.Error("two answers for one take: no error")
	}
	e.used(l, 0)
	e.used(other, 0)
}

// Many callers at once get all of a quota and no more.
func concurrent(e *example) {
	const callers, each, quota = 32, 20, 300
	l := sliding(quota, time.Hour)
	var admitted atomic.Int64
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for n := range each {
				takes := []store.Take{{Key: e.key, Limit: l, Cost: 1, ID: uint64(caller*each + n + 1)}}
				answers := make([]store.Answer, 1)
				if err := e.Store.Take(context.WithoutCancel(e.Context()), takes, answers); err != nil {
					e.Error(err)
				}
				if answers[0].Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := admitted.Load(); n != quota {
		e.Errorf("%d of %d requests admitted, want %d", n, callers*each, quota)
	}
}
