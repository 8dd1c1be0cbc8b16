package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/permits"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// world is a guard on a store that may fail, in a testing/synctest bubble.
type world struct {
	*faultyStore

	t       *testing.T
	guard   *Guard
	freeing sync.Mutex
	freed   []string // guarded by freeing
}

// inWorld calls f with a world for each failure policy that is given, or for Local.
func inWorld(t *testing.T, f func(w *world), change ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, faultyStore: newSharedLogs().connect()}
		c := Config{
			Store: w.faultyStore, Policy: "p", Label: "FailLocal", Timeout: 100 * time.Millisecond, LocalKeys: 1000,
			DenyCache: time.Second,
			Freed: func(k *store.Key) {
				w.freeing.Lock()
				defer w.freeing.Unlock()
				w.freed = append(w.freed, k.Text)
			},
		}
		for _, change := range change {
			change(&c)
		}
		w.guard = New(c)
		f(w)
		w.up(0)
		w.guard.Close()             // tests of Close look at it
		time.Sleep(2 * time.Second) // for calls to end that were left
		if w.wrong != nil {
			t.Errorf("settlements with a wrong age: %s", w.wrong)
		}
	})
}

func with(f Failure) func(*Config) { return func(c *Config) { c.Failure = f } }

// take asks for units of logs.
func (w *world) take(cost int, mode store.Mode, logs ...*modelLog) *asked {
	w.t.Helper()
	q := newAsked(logs, cost, mode)
	q.sent = time.Now()
	q.from, q.err = w.guard.Take(w.t.Context(), q.takes, q.answers)
	return q
}

// settle changes the cost of what take has asked for.
func (w *world) settle(q *asked, cost int) error {
	var errs []error
	for _, t := range q.takes {
		errs = append(errs, w.guard.Settle(w.t.Context(), store.Settlement{
			Key: t.Key, Limit: t.Limit, ID: t.ID, Was: t.Cost, Cost: cost, Age: time.Since(q.sent),
		}, q.from == event.Local))
	}
	return errors.Join(errs...)
}

// units returns the units that the store has in a log.
func (w *world) units(l *modelLog) (n int) {
	for _, e := range w.logs.Log(&l.key, l.limit) {
		n += e.Cost
	}
	return n
}

// wantUnits waits until what is due was replayed, and compares the units that the store has in logs.
func (w *world) wantUnits(want int, logs ...*modelLog) {
	w.t.Helper()
	time.Sleep(5 * time.Second)
	synctest.Wait()
	for _, l := range logs {
		if got := w.units(l); got != want {
			w.t.Errorf("the store has %d units of %s, want %d", got, l.key.Text, want)
		}
	}
	if s := w.guard.Stats(); s.Backlog != 0 {
		w.t.Errorf("%+v: a backlog is left", s)
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func wantFrom(t *testing.T, q *asked, from event.Source, allowed bool) {
	t.Helper()
	if q.from != from || q.allowed() != allowed {
		t.Errorf("from %v, allowed %t, want %v, %t: %v", q.from, q.allowed(), from, allowed, q.err)
	}
}

// After five failures in a row nothing is asked but a ping about once a second, until that is answered, however often.
func TestBreaker(t *testing.T) {
	inWorld(t, func(w *world) {
		l := newModelLog("k", 100, time.Hour)
		w.down(refuses)
		for i := range 25 {
			took := w.take(1, store.ModeCharge, newModelLog(fmt.Sprint(i), 9, time.Hour))
			if wantFrom(t, took, event.Local, true); i == 3 {
				w.up(0)
				wantFrom(t, w.take(1, store.ModeCharge, l), event.Store, true) // so the count begins anew
				w.down(refuses)
			}
			if i == 14 || i == 19 { // a call is answered that had found it closed before
				w.guard.report(w.guard.breaker.counted.Load(), nil)
			}
			time.Sleep(time.Millisecond)
		}
		if n := strings.Count(w.asked(), "take"); n != 20 {
			t.Errorf("%d takes, want 4, 1 and three times 5", n)
		}
		if s := w.guard.Stats(); s.Breaker != "open" || s.Outages != 3 || w.guard.Answers() {
			t.Errorf("%+v", s)
		}
		time.Sleep(20 * time.Second)
		calls := w.asked()
		if n := strings.Count(calls, "ping"); n < 13 || n > 20 || strings.Contains(calls, "take") {
			t.Errorf("%d pings in 20 s: %s", n, calls)
		}
		w.up(0)
		w.wantUnits(1, l)
		if s := w.guard.Stats(); s.Breaker != "closed" || s.Replayed != 25 {
			t.Errorf("%+v", s)
		}
		wantFrom(t, w.take(1, store.ModeCharge, l), event.Store, true)
	})
}

// A store that hangs opens the breaker, although all requests are of one key and wait for its replay.
func TestBreakerOfOneKey(t *testing.T) {
	inWorld(t, func(w *world) {
		w.down(hangs)
		begun := time.Now()
		for w.guard.Answers() && time.Since(begun) < time.Minute {
			w.take(1, store.ModeCharge, newModelLog("k", 100, time.Hour))
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the breaker opened after %v", took)
		}
		w.up(0)
		time.Sleep(2 * time.Minute) // for the calls to end
	})
}

// Calls that were under way when another one failed are one failure with it.
func TestFailuresAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.down(leaves)
		for range 4 {
			var all sync.WaitGroup
			for i := range 20 {
				all.Go(func() { w.take(1, store.ModeCharge, newModelLog(fmt.Sprint(i), 100, time.Hour)) })
			}
			all.Wait()
			time.Sleep(time.Millisecond)
		}
		if s := w.guard.Stats(); s.Breaker != "closed" {
			t.Errorf("%+v after four times of silence", s)
		}
	})
}

// A ping of a store without one is a peek at the log that has failed last.
func TestPingByPeek(t *testing.T) {
	inWorld(t, func(w *world) {
		w.down(refuses)
		for i := range 5 {
			w.take(1, store.ModeCharge, newModelLog(fmt.Sprint("k", i), 9, time.Hour))
			time.Sleep(time.Millisecond)
		}
		w.asked()
		w.up(0)
		time.Sleep(2 * time.Second)
		if calls := w.asked(); !strings.HasPrefix(calls, "take k4, merge") {
			t.Errorf("asked %s", calls)
		}
		w.wantUnits(1, newModelLog("k4", 9, time.Hour))
	}, func(c *Config) { c.Store = struct{ noPing }{noPing{c.Store.(*faultyStore)}} })
}

// noPing hides a method.
type noPing struct{ *faultyStore }

func (noPing) Ping() {}

// An answer to a call that was under way when the breaker opened does not close it.
func TestLateAnswer(t *testing.T) {
	inWorld(t, func(w *world) {
		w.up(90 * time.Millisecond)
		var late *asked
		go func() { late = w.take(1, store.ModeCharge, newModelLog("late", 9, time.Hour)) }()
		time.Sleep(10 * time.Millisecond)
		w.down(refuses)
		for i := range 5 {
			w.take(1, store.ModeCharge, newModelLog(fmt.Sprint(i), 9, time.Hour))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(90 * time.Millisecond)
		synctest.Wait()
		if wantFrom(t, late, event.Store, true); w.guard.Answers() {
			t.Error("the breaker is closed")
		}
	})
}

// Two pings are under way at most, and an answer to a third one is not waited for.
func TestPingsThatHang(t *testing.T) {
	inWorld(t, func(w *world) {
		w.down(hangs)
		for i := range 5 {
			w.take(1, store.ModeCharge, newModelLog(fmt.Sprint(i), 9, time.Hour))
		}
		w.asked()
		time.Sleep(30 * time.Second)
		if calls := w.asked(); calls != "ping, ping" {
			t.Errorf("asked %s", calls)
		}
		w.up(0)
		time.Sleep(2 * time.Minute) // for them to end
	})
}

// A store whose answers take most of the timeout decides again soon after an outage.
func TestRecoveryFromFarAway(t *testing.T) {
	for _, policy := range []Failure{Local, Open, Closed} {
		inWorld(t, func(w *world) {
			l := newModelLog("k", 100, time.Hour)
			w.down(drops)
			for range 8 {
				w.take(1, store.ModeCharge, l)
			}
			w.up(80 * time.Millisecond)
			for begun := time.Now(); time.Since(begun) < 5*time.Second; time.Sleep(100 * time.Millisecond) {
				go w.take(1, store.ModeCharge, l)
			}
			for range 20 {
				wantFrom(t, w.take(1, store.ModeCharge, l), event.Store, true)
			}
		}, with(policy))
	}
}

// A decision ends with the timeout, whatever is to be replayed before.
func TestDecisionsEndInTime(t *testing.T) {
	for _, f := range []fault{leaves, drops} {
		inWorld(t, func(w *world) {
			a, b := newModelLog("a", 9, time.Hour), newModelLog("b", 9, time.Hour)
			w.down(f)
			for range 8 {
				begun := time.Now()
				wantFrom(t, w.take(1, store.ModeCharge, a, b), event.Local, true)
				if took := time.Since(begun); took > 100*time.Millisecond {
					t.Errorf("a decision took %v", took)
				}
			}
			w.up(40 * time.Millisecond)
			time.Sleep(10 * time.Second)
			w.down(refuses)
			w.take(1, store.ModeCharge, a, b)
			w.up(40 * time.Millisecond) // two replays and a take are too long
			begun := time.Now()
			q := w.take(1, store.ModeCharge, a, b)
			if took := time.Since(begun); took > 100*time.Millisecond {
				t.Errorf("a decision took %v", took)
			}
			wantFrom(t, q, event.Local, false)
		})
	}
}

// The policies decide without a store that has failed. What Open admits counts nowhere, and Closed has nothing counted
// that it refuses.
func TestPolicies(t *testing.T) {
	for _, f := range []fault{refuses, loses, leaves, drops, panics} {
		for _, policy := range []Failure{Open, Closed} {
			inWorld(t, func(w *world) {
				l, other := newModelLog("k", 9, time.Hour), newModelLog("other", 9, time.Hour)
				w.down(f)
				if q := w.take(5, store.ModeAtMost, l); policy == Open && q.answers[0].Granted != 5 {
					t.Errorf("%d of 5 units were granted", q.answers[0].Granted)
				}
				for range 10 {
					q := w.take(1, store.ModeCharge, l, other)
					if policy == Open {
						wantFrom(t, q, event.Local, true)
					} else if q.from != event.Store || !store.IsOutage(q.err) {
						t.Errorf("from %v: %v", q.from, q.err)
					}
					if err := w.settle(q, 0); policy == Open && err != nil {
						t.Error(err)
					}
				}
				w.up(0)
				if policy == Closed {
					w.wantUnits(0, l, other)
				}
			}, with(policy))
		}
	}
}

// A mistake in the configuration is no outage, and no decision.
func TestConfigErrors(t *testing.T) {
	for _, policy := range []Failure{Local, Open, Closed} {
		inWorld(t, func(w *world) {
			q := &asked{takes: make([]store.Take, 1), answers: make([]store.Answer, 1)}
			q.takes[0] = store.Take{Key: store.NewKey("p", "k"), Cost: 1} // without a limit
			q.takes[0].Limit = &store.Limit{Log: "a", Quota: 1, Window: time.Hour}
			q.takes[0].Cost = 0
			from, err := w.guard.Take(t.Context(), q.takes, q.answers)
			if from != event.Store || !errors.As(err, new(*store.ConfigError)) || w.guard.Stats().Failures != 0 {
				t.Errorf("from %v: %v", from, err)
			}
		}, with(policy))
	}
}

// A key of another type is decided here, is tried about once a second, and stops nobody else.
func TestErrorOfOneKey(t *testing.T) {
	inWorld(t, func(w *world) {
		bad, good := newModelLog("bad", 90, time.Hour), newModelLog("good", 200, time.Hour)
		w.faults(func() fault {
			if strings.HasSuffix(w.calls[len(w.calls)-1], "bad") {
				return oneKey
			}
			return answers
		})
		for i := range 100 {
			wantFrom(t, w.take(1, store.ModeCharge, bad), event.Local, i < 90)
			wantFrom(t, w.take(1, store.ModeCharge, good), event.Store, true)
			time.Sleep(100 * time.Millisecond)
		}
		calls := w.asked()
		if n := strings.Count(calls, "bad"); n > 25 || strings.Contains(calls, "settle") {
			t.Errorf("the key was tried %d times in 10 s: %s", n, calls)
		}
		if s := w.guard.Stats(); s.Breaker != "closed" || s.Failures != 0 {
			t.Errorf("%+v", s)
		}
		w.up(0)
		w.wantUnits(90, bad)
		w.wantUnits(100, good)
	})
}

// An error about the only key of a request says that nothing was recorded.
func TestErrorOfTheOnlyKey(t *testing.T) {
	inWorld(t, func(w *world) {
		w.down(oneKey)
		if q := w.take(1, store.ModeCharge, newModelLog("bad", 9, time.Hour)); q.err == nil || store.IsOutage(q.err) {
			t.Errorf("%v", q.err)
		}
		if s := w.guard.Stats(); s.Backlog != 0 || s.Failures != 0 {
			t.Errorf("%+v", s)
		}
	}, with(Closed))
}

// While a long backlog is replayed, requests of its key are decided here at once, by an error of a class of its own.
func TestLongBacklog(t *testing.T) {
	inWorld(t, func(w *world) {
		l, other := newModelLog("k", 10_000, time.Hour), newModelLog("other", 10, time.Hour)
		w.down(refuses)
		for range 2000 {
			w.take(1, store.ModeCharge, l)
			time.Sleep(time.Microsecond)
		}
		w.up(50 * time.Millisecond)
		for w.guard.Stats().Replayed == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		begun := time.Now()
		q := w.take(1, store.ModeCharge, l, other)
		wantFrom(t, q, event.Local, true)
		var failed *store.StoreError
		if !errors.As(q.err, &failed) || failed.Class != "replay" || time.Since(begun) > 0 {
			t.Errorf("%v after %v", q.err, time.Since(begun))
		}
		wantFrom(t, w.take(1, store.ModeCharge, newModelLog("third", 10, time.Hour)), event.Store, true)
		w.wantUnits(2001, l)
		w.wantUnits(1, other)
		if s := w.guard.Stats(); s.Replayed > 2010 || s.Outages != 1 {
			t.Errorf("%+v: pages were sent again", s)
		}
	})
}

// Backlogs of many keys are replayed without a request, several at the same time.
func TestManyBacklogs(t *testing.T) {
	inWorld(t, func(w *world) {
		const keys = 1900 // which must not share logs
		w.down(refuses)
		for i := range keys {
			w.take(1, store.ModeCharge, newModelLog(fmt.Sprint(i), 10, time.Hour))
		}
		w.up(10 * time.Millisecond)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if s := w.guard.Stats(); s.Replayed != keys || s.Backlog != 0 {
			t.Errorf("%+v", s)
		}
	}, func(c *Config) { c.LocalKeys = 2000 })
}

// Keys for which there is no place count as lost, and Close says so.
func TestLostKeys(t *testing.T) {
	var log bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	inWorld(t, func(w *world) {
		w.down(refuses)
		for i := range 30 {
			w.take(2, store.ModeCharge, newModelLog(fmt.Sprint(i), 10, time.Hour))
		}
		if s := w.guard.Stats(); s.Lost != 20 || s.Backlog != 20 {
			t.Errorf("%+v", s)
		}
		w.up(0)
		time.Sleep(5 * time.Second)
		synctest.Wait() // time passing orders nothing for the race detector
		if !strings.Contains(log.String(), "units=20") {
			t.Errorf("the log does not tell:\n%s", &log)
		}
		err := w.guard.Close()
		if err == nil || !strings.Contains(err.Error(), "20 units") || !errors.Is(w.guard.Close(), err) {
			t.Errorf("Close: %v", err)
		}
	}, func(c *Config) { c.LocalKeys = 10 })
}

// Keys whose window has passed have no place in the record.
func TestPlacesOfARecord(t *testing.T) {
	inWorld(t, func(w *world) {
		w.down(refuses)
		for i := range 100 {
			w.take(1, store.ModeCharge, newModelLog(fmt.Sprint(i), 10, time.Second))
			time.Sleep(time.Second)
		}
		if s := w.guard.Stats(); s.Lost != 0 || s.Backlog > 20 {
			t.Errorf("%+v", s)
		}
	}, func(c *Config) { c.LocalKeys = 10 })
}

// What has left its window is not replayed, and not kept for that.
func TestReplayAfterTheWindow(t *testing.T) {
	inWorld(t, func(w *world) {
		l := newModelLog("k", 10, time.Second)
		w.down(loses)
		for range 8 {
			wantFrom(t, w.take(1, store.ModeCharge, l), event.Local, true)
		}
		time.Sleep(30 * time.Second)
		w.asked()
		w.up(0)
		w.wantUnits(0, l)
		if calls := w.asked(); strings.Contains(calls, "merge") || strings.Contains(calls, "settle") {
			t.Errorf("asked %s", calls)
		}
	})
}

// What was undone or settled in an outage is replayed as that, whether the store had it or not, and in a later one.
func TestSettleInAnOutage(t *testing.T) {
	for _, f := range []fault{refuses, loses, leaves, drops} {
		for _, again := range []bool{false, true} {
			inWorld(t, func(w *world) {
				l := newModelLog("k", 100, time.Hour)
				w.down(f)
				var all []*asked
				for range 10 {
					all = append(all, w.take(2, store.ModeCharge, l))
				}
				if again { // the replay fails as well
					time.Sleep(3 * time.Second)
				}
				for i, q := range all {
					noError(t, w.settle(q, []int{0, 1, 3, 2}[i%4]))
				}
				if again {
					w.up(0)
					time.Sleep(3 * time.Second)
					w.down(f)
					w.take(1, store.ModePeek, l)
					for _, q := range all[:3] {
						w.settle(q, 0) // the store may be told directly, and not answer
					}
					w.up(0)
					for _, q := range all[:3] {
						w.settle(q, 0) // as above
					}
				}
				w.up(0)
				want := 0
				for i := range all {
					if i >= 3 || !again {
						want += []int{0, 1, 3, 2}[i%4]
					}
				}
				w.wantUnits(want, l)
			})
		}
	}
}

// A settlement that comes while the take's call is under way is sent when that has ended. Until then no replay merges
// the take.
func TestSettleAfterTheCall(t *testing.T) {
	for _, costs := range [][]int{{1, 0, 3}, {3, 1}} {
		inWorld(t, func(w *world) {
			l := newModelLog("k", 100, time.Hour)
			w.down(leaves)
			q := w.take(2, store.ModeCharge, l)
			w.up(0)
			w.asked()
			for _, cost := range costs { // what was undone stays undone
				noError(t, w.settle(q, cost))
			}
			w.take(5, store.ModeCharge, l) // it replays before
			time.Sleep(99 * time.Millisecond)
			if calls := w.asked(); strings.Contains(calls, "settle") {
				t.Errorf("asked %s while the take was under way", calls)
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if calls := w.asked(); !strings.Contains(calls, "settle") {
				t.Errorf("asked %q, want a settlement", calls)
			}
			w.wantUnits(5+costs[1], l)
			if !slices.Equal(w.freed, []string{"k"}) {
				t.Errorf("freed %v", w.freed)
			}
		})
	}
}

// Several calls about one request, as of a store of several servers, have ended when the last one has.
func TestEndOfSeveralCalls(t *testing.T) {
	a, b, ended := &store.LeftError{Err: errFault}, &store.LeftError{Err: errFault}, 0
	whenEnded(errors.Join(a, b), func() { ended++ })
	if a.End(); ended > 0 {
		t.Error("they have ended after the first one")
	}
	if b.End(); ended != 1 {
		t.Errorf("they have ended %d times", ended)
	}
}

// Of several settlements at the same time, one is sent, and the last one when that has ended.
func TestSettleOneAtATime(t *testing.T) {
	for _, policy := range []Failure{Local, Open, Closed} {
		inWorld(t, func(w *world) {
			l := newModelLog("k", 100, time.Hour)
			q := w.take(5, store.ModeCharge, l)
			w.up(50 * time.Millisecond)
			w.asked()
			for range 20 { // at the same instant
				go w.settle(q, 3) // it answers
			}
			time.Sleep(10 * time.Millisecond)
			noError(t, w.settle(q, 1))
			if calls := w.asked(); calls != "settle k" {
				t.Errorf("asked %s", calls)
			}
			w.wantUnits(1, l)
		}, with(policy))
	}
}

// What is settled or added while a replay is under way is replayed as well, whether it is older than what is merged or
// within that.
func TestChangesDuringAReplay(t *testing.T) {
	for _, before := range []time.Duration{30 * time.Second, 500 * time.Millisecond} { // the last entry
		inWorld(t, func(w *world) {
			l := newModelLog("k", 100, time.Hour)
			time.Sleep(time.Minute)
			w.up(10 * time.Millisecond)
			w.down(loses)
			var a, b *asked
			var all sync.WaitGroup
			all.Go(func() { a = w.take(2, store.ModeCharge, l) })
			all.Go(func() { b = w.take(2, store.ModeCharge, l) })
			all.Wait()
			noError(t, w.settle(a, 1))
			time.Sleep(time.Second)
			last := w.take(2, store.ModeCharge, l)
			w.up(50 * time.Millisecond)
			wait := func(call string) {
				for w.asked() != call {
					time.Sleep(10 * time.Millisecond)
				}
			}
			w.asked()
			wait("settle k")
			noError(t, w.settle(b, 1)) // while a is settled
			wait("settle k")
			wait("merge k")
			add := store.Take{Key: l.key, Limit: l.limit, ID: newID(), Cost: 7}
			noError(t, w.guard.Add(t.Context(), &add, time.Since(last.sent)+before)) // while all are merged
			w.wantUnits(11, l)
		})
	}
}

// What is decided and undone here while the log is replayed is in the store once, wherever goroutines lose their turn.
func TestDecisionsDuringReplays(t *testing.T) {
	for range 3 { // in some the breaker opens at once
		decideDuringReplays(t)
	}
}

func decideDuringReplays(t *testing.T) {
	t.Helper()
	const callers, undone = 64, 50
	each := 4 * undone
	if testlen.Race { // which makes it take twenty times as long
		each = undone
	}
	s := &flapping{faultyStore: newSharedLogs().connect()}
	w := &world{t: t, faultyStore: s.faultyStore}
	w.guard = New(Config{Store: s, Timeout: time.Minute, LocalKeys: 1, Freed: func(*store.Key) {}})
	l := newModelLog("k", callers*each, time.Hour)
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := range each {
				q := w.take(1, store.ModeCharge, l)
				if i%undone == 0 {
					w.guard.Settle(t.Context(), store.Settlement{
						Key: l.key, Limit: l.limit, ID: q.takes[0].ID, Was: 1, Age: time.Since(q.sent),
					}, q.from == event.Local)
				}
			}
		})
	}
	all.Wait()
	s.stands.Store(true)
	noError(t, w.guard.Close())
	if got, want := w.units(l), callers*(each-each/undone); got != want {
		t.Errorf("the store has %d units, want %d; %+v", got, want, w.guard.Stats())
	}
}

// flapping is a store that does not execute some calls, and does not answer others, until it stands.
type flapping struct {
	*faultyStore

	asked  atomic.Int64
	stands atomic.Bool
}

// call executes a call unless it is the last of n, and answers it unless it is that or the one in the middle.
func (s *flapping) call(n int64, execute func()) error {
	number := s.asked.Add(1)
	if s.stands.Load() {
		number = 1
	}
	if number%n > 0 {
		execute()
	}
	if number%n == 0 || number%n == n/2 {
		return errFault
	}
	return nil
}

func (s *flapping) Take(_ context.Context, takes []store.Take, answers []store.Answer) error {
	own := make([]store.Answer, len(answers))
	err := s.call(3, func() { s.logs.Take(takes, own) })
	if err == nil {
		copy(answers, own)
	}
	return err
}

func (s *flapping) Settle(_ context.Context, m store.Settlement) error {
	return s.call(32, func() { s.logs.Settle(&m) })
}

func (s *flapping) Merge(_ context.Context, m store.MergeRequest) error {
	return s.call(32, func() { s.logs.Merge(&m) })
}

// A settlement whose caller has left is followed by the next one when it has ended.
func TestSettlementThatWasLeft(t *testing.T) {
	inWorld(t, func(w *world) {
		l := newModelLog("k", 100, time.Hour)
		q := w.take(5, store.ModeCharge, l)
		w.down(leaves)
		if err := w.settle(q, 3); !store.IsOutage(err) {
			t.Error(err)
		}
		w.up(0)
		noError(t, w.settle(q, 1))
		w.wantUnits(1, l)
	})
}

// Many settlements are replayed beside requests, which do not wait for them, and each is the latest.
func TestManySettlements(t *testing.T) {
	inWorld(t, func(w *world) {
		l := newModelLog("k", 1000, time.Hour)
		w.up(10 * time.Millisecond)
		w.down(loses)
		var all sync.WaitGroup
		made := make([]*asked, 60)
		for i := range made {
			all.Go(func() { made[i] = w.take(2, store.ModeCharge, l) })
		}
		all.Wait()
		settle := func(cost int) {
			for _, q := range made {
				noError(t, w.settle(q, cost))
			}
		}
		settle(1)
		w.up(50 * time.Millisecond)
		for w.asked(); !strings.Contains(w.asked(), "settle"); {
			time.Sleep(10 * time.Millisecond)
		}
		begun := time.Now()
		wantFrom(t, w.take(1, store.ModePeek, l), event.Local, true)
		if took := time.Since(begun); took > 0 {
			t.Errorf("a request has waited %v", took)
		}
		settle(3)
		w.wantUnits(180, l)
		w.down(loses)
		q := w.take(2, store.ModeCharge, l)
		noError(t, w.settle(q, 1))
		w.asked()
		for !strings.Contains(w.asked(), "settle") {
			w.take(1, store.ModePeek, l) // so that it is tried
		}
		go w.take(1, store.ModePeek, l)
		time.Sleep(10 * time.Millisecond)
		noError(t, w.settle(q, 4)) // while it is told the cost before, without an answer
		time.Sleep(time.Second)
		w.up(0)
		w.wantUnits(184, l)
	})
}

// What was never sent, and was undone, needs no settlement.
func TestUnsentTakesAreNotSettled(t *testing.T) {
	inWorld(t, func(w *world) {
		l := newModelLog("k", 100, time.Hour)
		w.down(refuses)
		for i := range 5 {
			w.take(1, store.ModeCharge, newModelLog(fmt.Sprint(i), 9, time.Hour))
		}
		time.Sleep(3 * time.Second)
		for range 10 {
			noError(t, w.settle(w.take(1, store.ModeCharge, l), 0))
		}
		w.asked()
		w.up(0)
		w.wantUnits(0, l)
		if calls := w.asked(); strings.Contains(calls, "settle") {
			t.Errorf("asked %s", calls)
		}
	})
}

// If many replays fail in a row, the others are tried later. A request whose log lacks something is not asked before.
func TestReplaysThatFail(t *testing.T) {
	inWorld(t, func(w *world) {
		w.down(refuses)
		for i := range 200 {
			w.take(1, store.ModeCharge, newModelLog(fmt.Sprint(i), 9, time.Hour))
		}
		w.faults(func() fault {
			if w.calls[len(w.calls)-1] != "ping" {
				return refuses
			}
			return answers
		})
		time.Sleep(2 * time.Second)
		w.asked()
		time.Sleep(10 * time.Second)
		// Those in flight when the last of mostFailed fails are tried, too.
		if n := strings.Count(w.asked(), "merge"); n < mostFailed*6 || n > (mostFailed+mostReplays)*12 {
			t.Errorf("%d replays were tried in 10 s", n)
		}
		w.faults(func() fault {
			if strings.HasPrefix(w.calls[len(w.calls)-1], "merge") {
				return refuses
			}
			return answers
		})
		time.Sleep(5 * time.Second)
		wantFrom(t, w.take(1, store.ModeCharge, newModelLog("7", 9, time.Hour)), event.Local, true)
		wantFrom(t, w.take(1, store.ModeCharge, newModelLog("another", 9, time.Hour)), event.Store, true)
	})
}

// A take whose caller has left, and that is denied here, is removed when its call has ended.
func TestDeniedAfterLeaving(t *testing.T) {
	for _, f := range []fault{leaves, drops, waits} {
		inWorld(t, func(w *world) {
			l, other := newModelLog("k", 1, time.Hour), newModelLog("other", 5, time.Hour)
			w.down(refuses)
			wantFrom(t, w.take(1, store.ModeCharge, l), event.Local, true)
			w.up(0)
			time.Sleep(3 * time.Second)
			w.logs.Reset(&l.key, []*store.Limit{l.limit}, 0) // as if another process had given it back
			w.down(f)
			wantFrom(t, w.take(1, store.ModeCharge, l, other), event.Local, false)
			w.up(0)
			w.wantUnits(0, l, other)
		})
	}
}

// A settlement that fails is done later if a replay may send its take again.
func TestFailedSettlementBeforeAReplay(t *testing.T) {
	inWorld(t, func(w *world) {
		l := newModelLog("k", 100, time.Hour)
		time.Sleep(time.Minute)
		w.down(refuses)
		q := w.take(2, store.ModeCharge, l)
		w.up(0)
		w.wantUnits(2, l)
		w.down(refuses)
		if err := w.settle(q, 1); !store.IsOutage(err) {
			t.Errorf("%v", err)
		}
		add := store.Take{Key: l.key, Limit: l.limit, ID: newID(), Cost: 5}
		noError(t, w.guard.Add(t.Context(), &add, time.Minute)) // before the take
		w.up(0)
		w.wantUnits(6, l)
	})
}

// A take that was undone is removed where a replay has added it, although its call has recorded nothing.
func TestUndoneAfterAReplay(t *testing.T) {
	inWorld(t, func(w *world) {
		l, full := newModelLog("k", 9, time.Hour), newModelLog("full", 1, time.Hour)
		elsewhere := []store.Take{{Key: full.key, Limit: full.limit, Cost: 1, ID: 7}}
		w.logs.Take(elsewhere, make([]store.Answer, 1))
		w.down(leaves)
		q := w.take(1, store.ModeCharge, l, full)
		wantFrom(t, q, event.Local, true)
		w.up(0)
		if a := w.take(1, store.ModePeek, l).answers[0]; a.Used != 1 {
			t.Errorf("%+v after a replay", a)
		}
		noError(t, w.settle(q, 0))
		w.wantUnits(0, l)
		w.wantUnits(1, full)
	})
}

// What is to be removed of one log is bounded.
func TestOwedIsBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		l := newModelLog("k", 1, time.Hour)
		w.take(1, store.ModeCharge, l)
		for i := range 2 * mostOwed {
			w.guard.owe(&store.Settlement{Key: l.key, Limit: l.limit, ID: uint64(i + 1), Was: 1})
		}
		if s := w.guard.Stats(); s.Backlog != mostOwed {
			t.Errorf("%+v", s)
		}
		w.wantUnits(1, l)
		w.asked()
		for _, age := range []time.Duration{0, 2 * time.Hour} { // which has left the window
			w.guard.owe(&store.Settlement{Key: l.key, Limit: l.limit, ID: newID(), Was: 1, Age: age})
		}
		w.wantUnits(1, l)
		if calls := w.asked(); calls != "settle k" {
			t.Errorf("asked %s", calls)
		}
	})
}

// Each mode is decided here as the store would, and afterwards the store has what was recorded, whatever it had.
func TestModesInAnOutage(t *testing.T) {
	for _, f := range []fault{refuses, loses, leaves, drops} {
		for mode, want := range map[store.Mode]int{
			store.ModeCharge: 3, store.ModePeek: 0, store.ModeRecord: 6, store.ModeChargeDenied: 3, store.ModeAtMost: 3,
		} {
			inWorld(t, func(w *world) {
				l, other := newModelLog("k", 3, time.Hour), newModelLog("other", 100, time.Hour)
				w.down(f)
				admitted := 0
				for range 6 {
					q := w.take(1, mode, l, other)
					if q.from != event.Local {
						t.Fatalf("%v: from %v", mode, q.from)
					}
					if q.allowed() {
						admitted++
					}
				}
				free := mode == store.ModePeek || mode == store.ModeRecord
				if want := map[bool]int{true: 6, false: 3}[free]; admitted != want {
					t.Errorf("%v: %d admitted, want %d", mode, admitted, want)
				}
				w.up(0)
				w.wantUnits(want, other)
				if mode != store.ModeChargeDenied { // of which the store may have more that count for no longer
					w.wantUnits(want, l)
				} else if n := w.units(l); n < 3 || n > 6 {
					t.Errorf("the store has %d units of k", n)
				}
			})
		}
	}
}

// Algorithms that count are decided and settled here, and nothing of an outage comes to the store.
func TestCountersInAnOutage(t *testing.T) {
	inWorld(t, func(w *world) {
		l := newModelLog("k", 3, time.Hour)
		l.limit.Algorithm = store.FixedWindow
		w.down(refuses)
		q := w.take(1, store.ModeCharge, l)
		wantFrom(t, w.take(2, store.ModeCharge, l), event.Local, true)
		wantFrom(t, w.take(1, store.ModeCharge, l), event.Local, false)
		err := w.guard.Settle(t.Context(), store.Settlement{
			Key: l.key, Limit: l.limit, ID: q.takes[0].ID, Was: 1, Period: q.answers[0].Period,
		}, true)
		noError(t, err)
		wantFrom(t, w.take(1, store.ModeCharge, l), event.Local, true)
		w.up(0)
		time.Sleep(5 * time.Second)
		if a := w.take(1, store.ModePeek, l).answers[0]; a.Used != 0 || w.guard.Stats().Backlog != 0 {
			t.Errorf("%+v, %+v", a, w.guard.Stats())
		}
	})
}

// A request that was not asked of a log is added to it later, in an outage too, and its cost changed, or it is undone.
func TestAdd(t *testing.T) {
	for i := range 20 {
		f, before, undo := fault(i/4), i%2 == 0, i/2%2 == 0 // the first change is before the outage
		inWorld(t, func(w *world) {
			l := newModelLog("k", 100, time.Hour)
			take := store.Take{Key: l.key, Limit: l.limit, ID: newID()}
			for i, cost := range []int{3, 5, 2} {
				if i > 0 || !before {
					w.down(f)
				}
				take.Cost = cost
				time.Sleep(time.Minute)
				if err := w.guard.Add(t.Context(), &take, time.Duration(i+2)*time.Minute); err != nil {
					t.Errorf("%d: %v", f, err)
				}
			}
			if undo {
				w.guard.Settle(t.Context(), store.Settlement{
					Key: l.key, Limit: l.limit, ID: take.ID, Was: 2, Age: 4 * time.Minute,
				}, false)
				take.Cost = 0
			}
			w.up(0)
			w.wantUnits(take.Cost, l)
			for _, e := range w.logs.Log(&l.key, l.limit) {
				if age := time.Since(e.At); age < 4*time.Minute {
					t.Errorf("%d: the entry is of %v ago", f, age)
				}
			}
		})
	}
}

// What the store did not hear of a take that it has admitted, it hears when it answers again, whatever the policy is.
func TestSettlementsThatFail(t *testing.T) {
	for _, policy := range []Failure{Local, Open, Closed} {
		for _, f := range []fault{drops, loses, leaves, waits} {
			inWorld(t, func(w *world) {
				l := newModelLog("k", 9, time.Hour)
				undone, settled := w.take(3, store.ModeCharge, l), w.take(4, store.ModeCharge, l)
				w.down(f)
				w.settle(undone, 0)
				w.settle(settled, 2)
				time.Sleep(time.Minute)
				w.up(0)
				w.wantUnits(2, l)
			}, with(policy))
		}
	}
}

// Where only the second call of Add is not answered, its units are added later under FailLocal, or it returns an error.
func TestAddIsHalfDone(t *testing.T) {
	for _, policy := range []Failure{Local, Open, Closed} {
		for _, f := range []fault{drops, loses, leaves} {
			inWorld(t, func(w *world) {
				l := newModelLog("k", 9, time.Hour)
				w.faults(func() fault {
					if strings.HasPrefix(w.calls[len(w.calls)-1], "merge") {
						return f
					}
					return answers
				})
				err := w.guard.Add(t.Context(), &store.Take{Key: l.key, Limit: l.limit, ID: newID(), Cost: 3}, 0)
				if (err == nil) != (policy == Local) { // which records it in this process
					t.Errorf("%v, fault %d: %v", policy, f, err)
				}
				w.up(0)
				if policy == Local {
					w.wantUnits(3, l)
				}
			}, with(policy))
		}
	}
}

// What is added is in the log, although something else is to be settled in it.
func TestAddBesideABacklog(t *testing.T) {
	inWorld(t, func(w *world) {
		l := newModelLog("k", 100, time.Hour)
		w.down(loses)
		w.take(2, store.ModeCharge, l) // which is refused, so it is to be removed
		w.up(0)
		noError(t, w.guard.Add(t.Context(), &store.Take{Key: l.key, Limit: l.limit, ID: newID(), Cost: 3}, 0))
		w.wantUnits(3, l)
	}, with(Closed))
}

// What a store has no method for is an error that names the method. A Reset of no logs does nothing.
func TestStoreWithoutMethods(t *testing.T) {
	inWorld(t, func(w *world) {
		g := New(Config{Store: struct{ store.Store }{w.faultyStore}, Policy: "p", Timeout: time.Second, LocalKeys: 10})
		l := newModelLog("k", 9, time.Hour)
		settled := g.Settle(t.Context(), store.Settlement{Key: l.key, Limit: l.limit, ID: 1, Was: 2}, false)
		added := g.Add(t.Context(), &store.Take{Key: l.key, Limit: l.limit, ID: 1, Cost: 3}, 0)
		for method, err := range map[string]error{"Settle": settled, "Merge": added} {
			if e := (*store.ConfigError)(nil); !errors.As(err, &e) || e.Option != method {
				t.Errorf("%s: %v", method, err)
			}
		}
		noError(t, g.Reset(t.Context(), l.key, nil))
		noError(t, g.Close())
	})
}

// Reset forgets what was admitted here, and what was to be replayed.
func TestReset(t *testing.T) {
	for _, f := range []fault{refuses, loses} {
		inWorld(t, func(w *world) {
			l := newModelLog("k", 3, time.Hour)
			reset := func() error { return w.guard.Reset(t.Context(), l.key, []*store.Limit{l.limit}) }
			w.down(f)
			for range 5 {
				w.take(1, store.ModeCharge, l)
			}
			if err := reset(); !store.IsOutage(err) {
				t.Errorf("%v", err)
			}
			wantFrom(t, w.take(2, store.ModeCharge, l), event.Local, true)
			w.up(0)
			time.Sleep(2 * time.Second)
			noError(t, reset())
			w.wantUnits(0, l)
			wantFrom(t, w.take(3, store.ModeCharge, l), event.Store, true)
			wantFrom(t, w.take(1, store.ModeCharge, l), event.Store, false)
			wantFrom(t, w.take(1, store.ModeCharge, l), event.Cache, false)
			noError(t, reset())
			wantFrom(t, w.take(3, store.ModeCharge, l), event.Store, true)
		})
	}
}

// A denial is remembered, but not of a log of which something is to be replayed. In an outage it holds for its wait.
func TestDenialsBesideABacklog(t *testing.T) {
	inWorld(t, func(w *world) {
		l, common := newModelLog("k", 3, time.Hour), newModelLog("common", 1, time.Hour)
		w.take(1, store.ModeCharge, common)
		wantFrom(t, w.take(1, store.ModeCharge, l, common), event.Store, false)
		q := w.take(1, store.ModeCharge, l, common)
		wantFrom(t, q, event.Cache, false)
		if q.answers[0].Known || !q.answers[1].Known || q.answers[1].Retry <= 0 {
			t.Errorf("%+v", q.answers)
		}
		w.down(refuses)
		wantFrom(t, w.take(1, store.ModeCharge, common), event.Cache, false)
		time.Sleep(time.Second)
		wantFrom(t, w.take(1, store.ModeCharge, common), event.Local, false)
		w.up(0)
		wantFrom(t, w.take(2, store.ModeCharge, l), event.Store, true)
		wantFrom(t, w.take(2, store.ModeCharge, l), event.Store, false)
		wantFrom(t, w.take(2, store.ModeCharge, l), event.Cache, false)
		w.down(refuses)
		wantFrom(t, w.take(1, store.ModeCharge, l), event.Local, true)
		wantFrom(t, w.take(2, store.ModeCharge, l), event.Local, false)
		w.up(0)
		time.Sleep(50 * time.Millisecond)
		wantFrom(t, w.take(1, store.ModeCharge, l), event.Store, false) // after a replay
		wantFrom(t, w.take(1, store.ModeCharge, common), event.Store, false)
		w.wantUnits(3, l)
		w.wantUnits(1, common)
	})
}

// Permits that this process holds count in an outage, and those that were taken in it are in the store afterwards.
// What the store has recorded for nobody is given back.
func TestPermitsInAnOutage(t *testing.T) {
	for _, f := range []fault{refuses, loses, leaves, drops} {
		inWorld(t, func(w *world) {
			l := newModelLog("k", 3, 30*time.Second)
			l.limit.Permits = true
			hold := func(q *asked) *permits.Held {
				return w.guard.Permits.Hold(t.Context(), []permits.Permit{{
					Key: l.key, Limit: l.limit, ID: q.takes[0].ID, Degraded: q.from == event.Local,
				}})
			}
			take := func(from event.Source, allowed bool) (held *permits.Held) {
				t.Helper()
				q := w.take(1, store.ModeCharge, l)
				if q.allowed() {
					held = hold(q)
				}
				if q.from != from || (held != nil) != allowed {
					t.Errorf("%d: from %v, %v, want %v, %t", f, q.from, held, from, allowed)
				}
				return held
			}
			first := take(event.Store, true)
			time.Sleep(2 * l.limit.Window) // it is renewed here as well
			w.down(f)
			second, third := take(event.Local, true), take(event.Local, true)
			take(event.Local, false)
			noError(t, second.Release(t.Context()))
			fourth := take(event.Local, true)
			take(event.Local, false)
			w.up(0)
			time.Sleep(3 * time.Second) // a renewal would be due later
			if got := w.units(l); got != 3 {
				t.Errorf("%d: the store has %d permits, of 3", f, got)
			}
			for _, h := range []*permits.Held{first, third, fourth} {
				noError(t, h.Release(t.Context()))
			}
			w.wantUnits(0, l)
		})
	}
}

// A permit whose release was not answered is given back as soon as the store answers again.
func TestReleaseInAnOutage(t *testing.T) {
	inWorld(t, func(w *world) {
		l := newModelLog("k", 3, time.Hour)
		l.limit.Permits = true
		q := w.take(1, store.ModeCharge, l)
		held := w.guard.Permits.Hold(t.Context(), []permits.Permit{{Key: l.key, Limit: l.limit, ID: q.takes[0].ID}})
		w.down(refuses)
		if err := held.Release(t.Context()); !store.IsOutage(err) {
			t.Error(err)
		}
		w.up(0)
		w.wantUnits(0, l)
	})
}

// A permit that is released before a renewal has ended which nobody waits for is given back after that.
func TestReleaseDuringARenewal(t *testing.T) {
	inWorld(t, func(w *world) {
		l := newModelLog("k", 3, time.Hour)
		l.limit.Permits = true
		q := w.take(1, store.ModeCharge, l)
		held := w.guard.Permits.Hold(t.Context(), []permits.Permit{{Key: l.key, Limit: l.limit, ID: q.takes[0].ID}})
		w.down(leaves)
		w.guard.Permits.Hasten()
		time.Sleep(150 * time.Millisecond)
		w.up(0)
		noError(t, held.Release(t.Context()))
		w.wantUnits(0, l)
	})
}

// A permit that was admitted without the store is given back where a renewal has added it, although its take, whose
// call is under way, is never sent.
func TestReleaseDuringATake(t *testing.T) {
	inWorld(t, func(w *world) {
		l := newModelLog("k", 3, time.Hour)
		l.limit.Permits = true
		w.down(waits)
		q := w.take(1, store.ModeCharge, l)
		held := w.guard.Permits.Hold(t.Context(), []permits.Permit{{
			Key: l.key, Limit: l.limit, ID: q.takes[0].ID, Degraded: true,
		}})
		w.up(0)
		w.guard.Permits.Hasten()
		time.Sleep(10 * time.Millisecond)
		noError(t, held.Release(t.Context()))
		w.wantUnits(0, l)
	}, with(Open))
}

// What is owed again while it is settled is settled again, since a renewal may have come between.
func TestOwedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		l := newModelLog("k", 3, time.Hour)
		s := &store.Settlement{Key: l.key, Limit: l.limit, ID: newID(), Was: 1}
		w.up(50 * time.Millisecond)
		w.guard.owe(s)
		for w.asked() == "" {
			time.Sleep(10 * time.Millisecond)
		}
		w.guard.owe(s)
		w.wantUnits(0, l)
		if calls := w.asked(); calls != "settle k" {
			t.Errorf("asked %q, want a second settlement", calls)
		}
	})
}

// Permits that the store has lost are added again, at most a third of a lease later, or after an outage at once.
func TestPermitsThatAreLost(t *testing.T) {
	for _, outage := range []bool{false, true} {
		inWorld(t, func(w *world) {
			l := newModelLog("k", 3, 30*time.Second)
			l.limit.Permits = true
			q := w.take(1, store.ModeCharge, l)
			held := w.guard.Permits.Hold(t.Context(), []permits.Permit{{Key: l.key, Limit: l.limit, ID: q.takes[0].ID}})
			w.logs.Reset(&l.key, []*store.Limit{l.limit}, 0)
			if outage {
				w.down(refuses)
				w.take(1, store.ModePeek, newModelLog("other", 3, time.Hour))
				w.up(0)
				w.take(1, store.ModePeek, newModelLog("other", 3, time.Hour))
			} else {
				time.Sleep(10 * time.Second)
			}
			synctest.Wait()
			time.Sleep(time.Millisecond)
			if got := w.units(l); got != 1 {
				t.Errorf("%d permits after 10 s, or after an outage %t", got, outage)
			}
			noError(t, held.Release(t.Context()))
			w.wantUnits(0, l)
		})
	}
}

// Close replays what is left, and its error says what it could not.
func TestClose(t *testing.T) {
	for _, c := range []struct {
		takes int
		left  string // of which the error tells, or nothing if all is replayed
	}{{7, ""}, {7, " 7 units "}, {1, " 1 unit "}} {
		inWorld(t, func(w *world) {
			l := newModelLog("k", 100, time.Hour)
			w.down(refuses)
			for range c.takes {
				w.take(1, store.ModeCharge, l)
			}
			if c.left == "" {
				w.up(0)
			}
			err := w.guard.Close()
			if c.left == "" {
				if err != nil || w.units(l) != 7 {
					t.Errorf("%v; %d units", err, w.units(l))
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.left) || !errors.Is(err, errFault) {
				t.Errorf("%v", err)
			}
			wantFrom(t, w.take(1, store.ModeCharge, l), event.Local, true) // it still decides
			w.up(0)
			wantFrom(t, w.take(1, store.ModeCharge, l), event.Store, true)
		})
	}
}

// Close takes five seconds at most.
func TestCloseEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		w.down(leaves)
		for i := range 50 {
			w.take(2, store.ModeCharge, newModelLog(fmt.Sprint(i), 10, time.Hour))
		}
		begun := time.Now()
		err := w.guard.Close()
		if took := time.Since(begun); err == nil || took > 6*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// Overrides have the time of a decision, and their errors are no failures of the store.
func TestOverrides(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx, cancel := w.guard.Within(t.Context())
		defer cancel()
		begun := time.Now()
		for range 4 {
			if _, _, err := w.guard.Overrides(ctx, "p", ""); !store.IsOutage(err) {
				t.Error(err)
			}
			if err := w.guard.SetOverride(ctx, "p", store.Override{}); !store.IsOutage(err) {
				t.Error(err)
			}
		}
		if took := time.Since(begun); took > 100*time.Millisecond || w.guard.Stats().Failures != 0 {
			t.Errorf("%v, %+v", took, w.guard.Stats())
		}
	}, func(c *Config) { c.Store = hanging{c.Store.(*faultyStore)} })
}

// hanging does not answer about overrides.
type hanging struct{ *faultyStore }

func (hanging) Overrides(ctx context.Context, _, _ string) (string, []store.Override, error) {
	<-ctx.Done()
	return "", nil, ctx.Err()
}

func (hanging) SetOverride(ctx context.Context, _ string, _ store.Override) error {
	<-ctx.Done()
	return ctx.Err()
}

// The beginning and the end of an outage are logged, at most every ten seconds, and no identity. An outage that begins
// soon after another one is logged as well, once ten seconds have passed since that one.
func TestOutageLog(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	for _, c := range []struct{ short, seconds int }{{10, 0}, {1, 20}} { // outages that are short, and a long one
		var log bytes.Buffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		inWorld(t, func(w *world) {
			l := newModelLog("alice", 100, time.Hour)
			for range c.short {
				w.down(refuses)
				w.take(1, store.ModeCharge, l)
				w.up(0)
				w.take(1, store.ModeCharge, l)
				time.Sleep(2 * time.Second)
			}
			w.down(refuses)
			for range c.seconds {
				w.take(1, store.ModeCharge, l)
				time.Sleep(time.Second)
			}
		})
		text := log.String()
		n, m := strings.Count(text, "does not answer"), strings.Count(text, "answers again")
		if n != 2 || m != 2 && c.seconds == 0 {
			t.Errorf("%+v: %d and %d lines:\n%s", c, n, m, text)
		}
		if strings.Contains(text, "alice") || !strings.Contains(text, "policy=p failure=FailLocal") {
			t.Errorf("the log has:\n%s", text)
		}
	}
}

// No request waits while a line is written for another one.
func TestOutageLogThatIsSlow(*testing.T) {
	l, k := new(outageLog), store.NewKey("p", "k")
	l.mu.Lock()
	l.failed(errOneKey, &k, func() bool { return true })
}

// A take allocates little, and a repeated denial nothing.
func TestAllocations(t *testing.T) {
	s := newSharedLogs().connect()
	g := New(Config{
		Store: answering{s}, Policy: "p", Timeout: time.Minute, DenyCache: time.Hour, LocalKeys: 1000,
		Freed: func(*store.Key) {},
	})
	defer g.Close()
	l := newModelLog("k", 1_000_000, time.Hour)
	if n := testing.AllocsPerRun(100, func() {
		takes, answers := [1]store.Take{{Key: l.key, Limit: l.limit, Cost: 1}}, [1]store.Answer{}
		g.Take(context.Background(), takes[:], answers[:]) // it answers
	}); n > 6 && !testlen.Race { // the race detector makes some of its own
		t.Errorf("%v allocations a take", n) // of the context
	}
	denied := newModelLog("denied", 1, time.Hour)
	if n := testing.AllocsPerRun(100, func() {
		takes, answers := [1]store.Take{{Key: denied.key, Limit: denied.limit, Cost: 1}}, [1]store.Answer{}
		g.Take(context.Background(), takes[:], answers[:]) // it answers
	}); n > 0 {
		t.Errorf("%v allocations a denial", n)
	}
}

// answering answers without noting what was asked.
type answering struct{ *faultyStore }

func (s answering) Take(_ context.Context, takes []store.Take, answers []store.Answer) error {
	s.logs.Take(takes, answers)
	return nil
}
