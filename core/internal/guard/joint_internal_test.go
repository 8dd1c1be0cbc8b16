package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

// jointTest is a guard and the logs of users and of their organisation.
type jointTest struct {
	*testing.T
	*Guard
	store *faultyStore
	plans map[string]*store.Plan
}

const jointWindow = time.Hour

// inBubble runs f with a guard that counts each user and the organisation, as a subtest.
func inBubble(t *testing.T, name string, failure Failure, user, org int, f func(j *jointTest)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newSharedLogs().connect()
			j := &jointTest{T: t, store: s, plans: make(map[string]*store.Plan)}
			j.Guard = New(Config{
				Store: s, Policy: "p", Failure: failure,
				Timeout: 100 * time.Millisecond, DenyCache: time.Second, LocalKeys: 100,
			})
			for i := range 10 {
				j.plans[fmt.Sprint("u", i)] = planOf(user, jointWindow)
			}
			j.plans["org"] = planOf(org, jointWindow)
			defer synctest.Wait()
			defer func() {
				s.up(0)
				if err := j.Close(); err != nil {
					t.Error(err)
				}
			}()
			f(j)
		})
	})
}

// asked is a request and its answers.
type asked struct {
	takes   []store.Take
	answers []store.Answer
	from    event.Source
	err     error
}

func (q *asked) allowed() bool {
	return !slices.ContainsFunc(q.answers, denied)
}

func (j *jointTest) takes(mode store.Mode, cost int, names ...string) *asked {
	q := &asked{answers: make([]store.Answer, len(names))}
	for _, name := range names {
		q.takes = append(q.takes, store.Take{Key: store.NewKey("p", name), Plan: j.plans[name], Cost: cost, Mode: mode})
	}
	return q
}

func (j *jointTest) take(mode store.Mode, cost int, names ...string) *asked {
	q := j.takes(mode, cost, names...)
	q.from, q.err = j.Take(j.Context(), q.takes, q.answers)
	return q
}

// want takes a unit of a user and of the organisation, and checks what is answered to each.
func (j *jointTest) want(from event.Source, mode store.Mode, cost int, user string, allowed, orgAllowed bool) *asked {
	j.Helper()
	q := j.take(mode, cost, user, "org")
	if q.from != from || q.answers[0].Allowed != allowed || q.answers[1].Allowed != orgAllowed {
		j.Fatalf("%d units of %s: %+v, from %d, %v", cost, user, q.answers, q.from, q.err)
	}
	if from != event.Local && q.err != nil {
		j.Fatal(q.err)
	}
	return q
}

// holds checks how many units the store's logs have.
func (j *jointTest) holds(want map[string]int) {
	j.Helper()
	for name := range j.plans {
		units := 0
		key := store.NewKey("p", name)
		for _, e := range j.store.logs.Log(&key, jointWindow) {
			units += e.Cost
		}
		if units != want[name] {
			j.Errorf("the log of %s has %d units, want %d", name, units, want[name])
		}
	}
}

// recovers waits until everything has been replayed.
func (j *jointTest) recovers() {
	j.Helper()
	j.store.up(0)
	time.Sleep(5 * time.Second)
	synctest.Wait()
	if n := j.record.entries.Load(); n != 0 || j.breaker.state() != closed {
		j.Errorf("%d entries remain, the breaker is %d", n, j.breaker.state())
	}
}

// A denial of one log is answered from memory to all who draw from it. The other log is not remembered.
func TestJointDenialIsRemembered(t *testing.T) {
	inBubble(t, "", Closed, 5, 2, func(j *jointTest) {
		j.want(event.Store, store.ModeCharge, 1, "u1", true, true)
		j.want(event.Store, store.ModeCharge, 1, "u1", true, true)
		denied := j.want(event.Store, store.ModeCharge, 1, "u1", true, false)
		j.store.asked()
		time.Sleep(time.Second / 2)
		q := j.want(event.Cache, store.ModeCharge, 1, "u2", true, false)
		if q.answers[0] != (store.Answer{Allowed: true}) {
			t.Errorf("the log that is not known: %+v", q.answers[0])
		}
		want := denied.answers[1].Retry - time.Second/2
		if q.answers[1].Retry != want || q.answers[1].State[0].Used != 2 {
			t.Errorf("%+v, want a wait of %v", q.answers[1], want)
		}
		if q := j.take(store.ModeCharge, 1, "org"); q.from != event.Cache || q.allowed() {
			t.Errorf("the organisation alone: %+v", q)
		}
		if q := j.take(store.ModeCharge, 1, "u1"); q.from != event.Store || !q.allowed() {
			t.Errorf("a user alone: %+v", q)
		}
		if calls := j.store.asked(); calls != "take" {
			t.Errorf("asked: %s", calls)
		}
		j.holds(map[string]int{"u1": 3, "org": 2})
		if err := j.Reset(t.Context(), store.NewKey("p", "org")); err != nil {
			t.Fatal(err)
		}
		j.want(event.Store, store.ModeCharge, 1, "u2", true, true)
	})
}

// If several logs are known to deny, all of their waits are told.
func TestJointDenialsOfSeveralLogs(t *testing.T) {
	inBubble(t, "", Closed, 1, 1, func(j *jointTest) {
		j.take(store.ModeCharge, 1, "org")
		time.Sleep(time.Minute)
		j.take(store.ModeCharge, 1, "u1")
		j.take(store.ModeCharge, 1, "org")
		j.take(store.ModeCharge, 1, "u1")
		q := j.want(event.Cache, store.ModeCharge, 1, "u1", false, false)
		if q.answers[0].Retry != jointWindow || q.answers[1].Retry != jointWindow-time.Minute {
			t.Errorf("%+v", q.answers)
		}
	})
}

// A log with room in a request that another log denies has nothing added: what is known about it stays as it is.
func TestJointRoomIsNotCharged(t *testing.T) {
	inBubble(t, "", Local, 8, 10, func(j *jointTest) {
		j.want(event.Store, store.ModeCharge, 8, "u1", true, true)
		j.want(event.Store, store.ModeCharge, 5, "u2", true, false)
		j.want(event.Store, store.ModeCharge, 1, "u1", false, true)
		j.want(event.Cache, store.ModeCharge, 5, "u3", true, false) // its wait has become no longer
		j.want(event.Store, store.ModeCharge, 1, "u2", true, true)
		j.want(event.Store, store.ModeCharge, 5, "u3", true, false) // it has become longer
		time.Sleep(2 * time.Second)                                 // so that the denials are known in outages only
		j.want(event.Store, store.ModeCharge, 1, "u1", false, true) // one unit is left
		j.store.down(refuses)
		j.want(event.Local, store.ModeCharge, 1, "u3", true, true)
		j.recovers()
		j.holds(map[string]int{"u1": 8, "u2": 1, "u3": 1, "org": 10})
	})
}

// A quota that a request over several logs has used up is known in an outage.
func TestJointUsedUpIsKnownInOutages(t *testing.T) {
	inBubble(t, "", Local, 5, 2, func(j *jointTest) {
		j.want(event.Store, store.ModeCharge, 2, "u1", true, true)
		j.store.down(refuses)
		q := j.want(event.Local, store.ModeCharge, 1, "u2", true, false)
		if q.answers[1].Retry != jointWindow {
			t.Errorf("%+v", q.answers[1])
		}
		j.recovers()
		j.holds(map[string]int{"u1": 2, "org": 2})
	})
}

// One request a second asks the store about a denial, and no turn is lost on requests that another log denies.
func TestJointGrace(t *testing.T) {
	inBubble(t, "", Closed, 1, 1, func(j *jointTest) {
		j.want(event.Store, store.ModeCharge, 1, "u1", true, true)
		j.want(event.Store, store.ModeCharge, 1, "u2", true, false)
		time.Sleep(time.Second / 2)
		j.take(store.ModeCharge, 1, "u1")
		time.Sleep(time.Second / 2)                                  // it is time to ask about the organisation
		j.want(event.Cache, store.ModeCharge, 1, "u1", false, false) // but not for users who are denied
		j.want(event.Store, store.ModeCharge, 1, "u2", true, false)
		j.want(event.Cache, store.ModeCharge, 1, "u3", true, false)
		time.Sleep(time.Second)
		j.store.up(j.timeout / 2)
		var first sync.WaitGroup
		first.Go(func() {
			if q := j.take(store.ModeCharge, 1, "u2", "org"); q.from != event.Store || q.allowed() {
				t.Errorf("%+v", q)
			}
		})
		synctest.Wait() // the store is being asked
		j.want(event.Cache, store.ModeCharge, 1, "u3", true, false)
		first.Wait()
		j.store.up(0)
		time.Sleep(time.Second)
		org := store.NewKey("p", "org")
		j.store.logs.Reset(&org) // by another process
		j.want(event.Store, store.ModeCharge, 1, "u1", false, true)
		j.want(event.Store, store.ModeCharge, 1, "u2", true, true)
	})
}

// Denials that count reach the store, and so does a request of which any log has shadow limits.
func TestJointNotCached(t *testing.T) {
	inBubble(t, "", Closed, 3, 1, func(j *jointTest) {
		j.want(event.Store, store.ModeChargeDenied, 1, "u1", true, true)
		for range 3 {
			j.want(event.Store, store.ModeChargeDenied, 1, "u1", true, false)
		}
		j.holds(map[string]int{"u1": 1, "org": 1})
		j.want(event.Store, store.ModeCharge, 1, "u1", true, false)
		shadowed := *j.plans["u2"]
		shadowed.Limits, shadowed.Shadow = append(shadowed.Limits, store.Limit{Quota: 1, Window: time.Second}), 1
		j.plans["u2"] = store.NewPlan(shadowed)
		j.want(event.Store, store.ModeCharge, 1, "u2", true, false)
		j.want(event.Cache, store.ModeCharge, 1, "u1", true, false)
	})
}

// Open admits everything, Closed nothing, and neither of them calls a store that has failed often.
func TestJointFailurePolicies(t *testing.T) {
	for _, failure := range []Failure{Open, Closed} {
		for _, f := range []fault{refuses, late, partial, oneKey} {
			inBubble(t, fmt.Sprintf("policy %d, %s", failure, f), failure, 1, 1, func(j *jointTest) {
				j.store.down(f)
				for range failuresToOpen + 5 {
					q := j.take(store.ModeCharge, 1, "u1", "org")
					open := q.from == event.Local && q.answers[0] == q.answers[1] &&
						q.answers[0] == store.Answer{Allowed: true}
					if q.err == nil || (failure == Open) != open || failure == Closed && q.from != event.Store {
						t.Errorf("fault %d: %+v", f, q)
					}
					time.Sleep(time.Millisecond)
				}
				calls, want := strings.Count(j.store.asked(), "take all"), failuresToOpen
				if f == oneKey {
					want += 5
				}
				if calls != want {
					t.Errorf("fault %d: %d calls, want %d", f, calls, want)
				}
			})
		}
	}
}

// A panic of the store in TakeAll counts as a failure.
func TestJointPanics(t *testing.T) {
	inBubble(t, "", Open, 1, 1, func(j *jointTest) {
		j.store.down(panics)
		panicked := 0
		for range 20 {
			func() {
				defer func() {
					if recover() != nil {
						panicked++
					}
				}()
				j.take(store.ModeCharge, 1, "u1", "org")
			}()
			time.Sleep(time.Millisecond)
		}
		if panicked != failuresToOpen || j.breaker.state() != open {
			t.Errorf("%d panics of 20, and the breaker is %v", panicked, j.breaker.state())
		}
		time.Sleep(2 * retryStore)
		if q := j.take(store.ModeCharge, 1, "u1", "org"); q.from != event.Local { // the probe is in a goroutine
			t.Errorf("%+v", q)
		}
		j.store.up(0)
		time.Sleep(2 * retryStore)
		j.want(event.Store, store.ModeCharge, 1, "u1", true, true)
	})
}

// single is a store that decides over one log only.
type single struct{ store.Store }

func (s single) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	if len(takes) > 1 {
		return &store.ConfigError{Option: "By"}
	}
	return s.Store.Take(ctx, takes, answers)
}

// A ConfigError of the store is no decision, whatever the failure policy is.
func TestJointConfigErrors(t *testing.T) {
	s := newSharedLogs().connect()
	for _, failure := range []Failure{Local, Open, Closed} {
		g := New(Config{Store: single{s}, Policy: "p", Failure: failure, Timeout: time.Minute, LocalKeys: 10})
		plan := planOf(100, time.Hour)
		takes := []store.Take{
			{Key: store.NewKey("p", "a"), Plan: plan, Cost: 1}, {Key: store.NewKey("p", "b"), Plan: plan, Cost: 1},
		}
		ask := func(takes []store.Take) (event.Source, error) {
			return g.Take(t.Context(), takes, make([]store.Answer, len(takes)))
		}
		if from, err := ask(takes); from != event.Store || !errors.As(err, new(*store.ConfigError)) {
			t.Errorf("a store of one log: %d, %v", from, err)
		}
		if from, err := ask(takes[:1]); from != event.Store || err != nil || takes[0].ID == 0 {
			t.Errorf("one take: %d, %v, %+v", from, err, takes[0])
		}
		g.store.Store = s
		if from, err := ask(takes); from != event.Store || err != nil || takes[0].ID != takes[1].ID {
			t.Errorf("two takes: %d, %v, %+v", from, err, takes)
		}
	}
	if a, b := newID(), newID(); a == 0 || a == b {
		t.Errorf("ids %d and %d", a, b)
	}
}

// No identity of the request appears in the log.
func TestJointIdentitiesAreNotLogged(t *testing.T) {
	inBubble(t, "", Open, 1, 1, func(j *jointTest) {
		for _, name := range []string{"u1", "u2"} {
			err := &store.StoreError{
				Err: errors.New("no answer about " + name), Class: "timeout", Advice: "look at " + name,
			}
			q := j.take(store.ModePeek, 1, "u1", "u2")
			r := request{takes: q.takes, answers: q.answers}
			failed := func(err error) string {
				p, _ := j.breaker.admit()
				j.breaker.failure(p)
				text := logged(func() { j.noteError(err, r.takes...) })
				j.breaker.success(p)
				time.Sleep(logInterval)
				return text
			}
			if text := failed(err); !strings.Contains(text, "class=timeout") || strings.Contains(text, name) {
				t.Errorf("logged: %s", text)
			}
			text := failed(&store.StoreError{Err: errors.New("no answer"), Class: "timeout"})
			if !strings.Contains(text, "no answer") {
				t.Errorf("logged: %s", text)
			}
		}
	})
}

// In an outage this process decides over all logs. Afterwards the store has in each log what was admitted, once,
// whether it has executed the calls that failed or not.
func TestJointOutage(t *testing.T) {
	for _, f := range []fault{refuses, loses, late, partial, oneKey} {
		inBubble(t, f.String(), Local, 2, 3, func(j *jointTest) {
			j.store.down(f)
			j.want(event.Local, store.ModeCharge, 1, "u1", true, true)
			j.want(event.Local, store.ModeCharge, 1, "u1", true, true)
			j.want(event.Local, store.ModeCharge, 1, "u1", false, true)
			j.want(event.Local, store.ModePeek, 1, "u3", true, true)
			j.want(event.Local, store.ModeCharge, 1, "u2", true, true)
			j.want(event.Local, store.ModeCharge, 1, "u2", true, false)
			j.want(event.Local, store.ModeCharge, 1, "u3", true, false)
			j.want(event.Local, store.ModePeek, 1, "u3", true, false)
			j.recovers()
			j.holds(map[string]int{"u1": 2, "u2": 1, "org": 3})
			j.want(event.Store, store.ModeCharge, 1, "u3", true, false)
		})
	}
}

// What the store has admitted unknown to this process, which denies it, is removed from all logs.
func TestJointDeniedHereAdmittedThere(t *testing.T) {
	for _, c := range []struct {
		fault fault
		mode  store.Mode
		org   int // units at the end
	}{
		{loses, store.ModeCharge, 2}, {partial, store.ModeCharge, 2}, {late, store.ModeCharge, 2},
		{oneKey, store.ModeCharge, 2}, {loses, store.ModePeek, 2},
		{loses, store.ModeChargeDenied, 2}, {partial, store.ModeChargeDenied, 2},
	} {
		inBubble(t, fmt.Sprintf("%s, %v", c.fault, c.mode), Local, 5, 2, func(j *jointTest) {
			j.store.down(refuses)
			j.want(event.Local, store.ModeCharge, 2, "u1", true, true)
			j.store.down(c.fault)
			first := j.want(event.Local, c.mode, 1, "u2", true, false)
			if c.mode == store.ModeChargeDenied { // it stays in the log of the organisation, of which it trims another
				j.want(event.Local, store.ModePeek, 1, "u3", true, false)
			}
			if j.recovers(); first.answers[1].Retry <= 0 {
				t.Errorf("fault %d, mode %v: %+v", c.fault, c.mode, first.answers)
			}
			j.holds(map[string]int{"u1": 2, "org": c.org})
		})
	}
}

// A denial that this process knows denies in an outage. What the store has admitted nevertheless is removed from all
// logs, and what counts although it is denied stays in the log that denies.
func TestJointKnownDenialInOutage(t *testing.T) {
	for _, mode := range []store.Mode{store.ModeCharge, store.ModePeek, store.ModeChargeDenied} {
		for _, f := range []fault{refuses, loses, partial} {
			inBubble(t, fmt.Sprintf("%v, %s", mode, f), Local, 5, 2, func(j *jointTest) {
				j.want(event.Store, mode|store.ModeCharge, 2, "u1", true, true)
				if mode == store.ModePeek {
					j.want(event.Store, store.ModeCharge, 2, "u1", true, true)
				}
				j.want(event.Store, store.ModeCharge, 1, "u1", true, false)
				time.Sleep(2 * time.Second)
				org := store.NewKey("p", "org")
				j.store.logs.Reset(&org) // by another process
				j.store.down(f)
				q := j.want(event.Local, mode, 1, "u2", true, false)
				if q.answers[1].Retry != jointWindow-2*time.Second {
					t.Errorf("mode %v, fault %d: %+v", mode, f, q.answers[1])
				}
				// Here the organisation has no room, so that the denial counts there, but not for the user.
				j.want(event.Local, mode, 1, "u2", true, false)
				q = j.want(event.Local, mode, 1, "u2", true, false)
				if mode == store.ModeChargeDenied && q.answers[1].Retry != jointWindow { // after two denials that count
					t.Errorf("fault %s: %+v", f, q.answers[1])
				}
				j.recovers()
				want := map[string]int{"u1": 2}
				if mode == store.ModeChargeDenied {
					want["org"] = 2
				}
				j.holds(want)
			})
		}
	}
}

// Takes that are recorded in any case are recorded in all logs, also in an outage.
func TestJointRecordInOutage(t *testing.T) {
	for _, f := range []fault{answers, refuses, loses, partial} {
		inBubble(t, f.String(), Local, 2, 3, func(j *jointTest) {
			j.store.down(f)
			for range 5 {
				if q := j.take(store.ModeRecord, 1, "u1", "org"); !q.allowed() {
					t.Errorf("%+v", q)
				}
			}
			j.recovers()
			j.holds(map[string]int{"u1": 5, "org": 5})
		})
	}
}

// Denials that count are recorded in the logs without room, also in an outage.
func TestJointChargeDeniedInOutage(t *testing.T) {
	for _, f := range []fault{answers, refuses, loses, partial} {
		inBubble(t, f.String(), Local, 2, 3, func(j *jointTest) {
			from := event.Local
			if f == answers {
				from = event.Store
			}
			j.store.down(f)
			j.want(from, store.ModeChargeDenied, 1, "u1", true, true)
			time.Sleep(10 * time.Millisecond) // before a replay begins
			j.want(from, store.ModeChargeDenied, 1, "u1", true, true)
			q := j.want(from, store.ModeChargeDenied, 1, "u1", false, true)
			if q.answers[0].Retry != jointWindow { // the older one of the two units that the log keeps is of now
				t.Errorf("a wait of %v", q.answers[0].Retry)
			}
			j.want(from, store.ModeChargeDenied, 1, "u2", true, true)
			j.want(from, store.ModeChargeDenied, 1, "u2", true, false)
			j.recovers()
			j.holds(map[string]int{"u1": 2, "u2": 1, "org": 3})
		})
	}
}

// backlogOf decides n units of a user in an outage that ends at once.
func (j *jointTest) backlogOf(n int, names ...string) {
	j.Helper()
	j.store.down(refuses)
	if q := j.take(store.ModeCharge, n, names...); q.from != event.Local || !q.allowed() {
		j.Fatalf("%+v", q)
	}
	j.store.up(0)
	j.store.asked()
}

// A request whose logs have backlogs is decided by the store, as if they had been replayed.
func TestJointWithBacklog(t *testing.T) {
	for _, c := range []struct {
		desc    string
		backlog []string
		cost    int
		mode    store.Mode
		allowed bool // by the organisation
		calls   string
		holds   map[string]int
	}{
		{
			"the same", []string{"u1", "org"}, 1, store.ModeCharge, true,
			"take all, merge", map[string]int{"u1": 2, "u2": 1, "org": 3},
		},
		{
			"another decision", []string{"u1", "org"}, 2, store.ModeCharge, false,
			//nolint:dupword // calls of the store
			"take all, merge, settle, settle, take all", map[string]int{"u1": 2, "org": 2},
		},
		{
			"another decision of a denial that counts", []string{"u1", "org"}, 2, store.ModeChargeDenied, false,
			//nolint:dupword // calls of the store
			"take all, merge, settle, settle, take all", map[string]int{"u1": 2, "org": 3},
		},
		{
			"a peek", []string{"u1", "org"}, 2, store.ModePeek, false,
			"take all, merge, take all", map[string]int{"u1": 2, "org": 2},
		},
		{
			"of both logs", []string{"u2", "org"}, 1, store.ModeCharge, true,
			"take all, merge, merge", map[string]int{"u2": 3, "org": 3},
		},
		{
			"of the user", []string{"u2"}, 3, store.ModeCharge, true,
			"take all, merge", map[string]int{"u2": 5, "org": 3},
		},
	} {
		inBubble(t, c.desc, Local, 5, 3, func(j *jointTest) {
			j.backlogOf(2, c.backlog...)
			q := j.want(event.Store, c.mode, c.cost, "u2", true, c.allowed)
			if c.allowed && q.answers[1].State[0].Used != c.holds["org"]-c.cost {
				t.Errorf("%s: %+v", c.desc, q.answers[1])
			}
			synctest.Wait()
			if calls := j.store.asked(); calls != c.calls {
				t.Errorf("%s: %s, want %s", c.desc, calls, c.calls)
			}
			if j.recovers(); q.takes[0].ID != q.takes[1].ID {
				t.Errorf("%s: %+v", c.desc, q.takes)
			}
			j.holds(c.holds)
		})
	}
}

// A grant is asked about again if a backlog leaves fewer units than the store has granted.
func TestJointGrantWithBacklog(t *testing.T) {
	inBubble(t, "", Local, 5, 4, func(j *jointTest) {
		j.backlogOf(1, "u1", "org")
		j.store.asked()
		if q := j.take(store.ModeUpTo, 9, "u2", "org"); q.answers[0].Granted != 3 || q.answers[1].Granted != 3 {
			t.Errorf("%+v, want 3 units granted", q)
		}
		undone := "settle, settle, take all" //nolint:dupword // one of each log
		if calls := j.store.asked(); !strings.HasSuffix(calls, undone) {
			t.Error(calls)
		}
		j.recovers()
		j.holds(map[string]int{"u1": 1, "u2": 3, "org": 4})
	})
}

// A grant is asked about again if the store has a take that was undone while it did not answer.
func TestGrantBesideUndoneTake(t *testing.T) {
	for _, names := range [][]string{{"u1"}, {"u1", "org"}} {
		inBubble(t, "", Local, 10, 10, func(j *jointTest) {
			j.store.down(loses)
			undone := j.take(store.ModeCharge, 9, names...)
			for _, take := range undone.takes {
				if err := j.Settle(t.Context(), store.Settlement{Key: take.Key, ID: take.ID}, true); err != nil {
					t.Fatal(err)
				}
			}
			j.store.up(0)
			if q := j.take(store.ModeUpTo, 9, names...); q.answers[0].Granted != 9 || q.from != event.Store {
				t.Errorf("%v: %+v, want 9 units granted", names, q)
			}
			j.recovers()
		})
	}
}

// In an outage a log that had more units than were granted is not taken for used up.
func TestJointGrantUsesUpOneLog(t *testing.T) {
	inBubble(t, "", Local, 3, 5, func(j *jointTest) {
		if q := j.take(store.ModeUpTo, 9, "u1", "org"); q.answers[0].Granted != 3 || q.from != event.Store {
			t.Errorf("%+v, want 3 units granted", q)
		}
		j.store.down(refuses)
		if q := j.take(store.ModeUpTo, 9, "u2", "org"); q.answers[0].Granted != 3 || q.from != event.Local {
			t.Errorf("%+v, want 3 units granted", q)
		}
		if q := j.take(store.ModeUpTo, 9, "u1", "org"); q.answers[0].Allowed || q.from != event.Local {
			t.Errorf("%+v, want a denial by the user's log", q)
		}
	})
}

// A denial that one log has recorded is not asked about again, whatever the other log's backlog says.
func TestJointDenialThatCountsWithBacklog(t *testing.T) {
	inBubble(t, "", Local, 2, 3, func(j *jointTest) {
		j.take(store.ModeCharge, 2, "u2")
		j.store.down(refuses)
		time.Sleep(2 * time.Second)
		j.take(store.ModeCharge, 2, "org")
		j.store.up(0)
		j.store.asked()
		j.want(event.Store, store.ModeChargeDenied, 2, "u2", false, true)
		synctest.Wait()
		if calls := j.store.asked(); calls != "take all, merge" {
			t.Error(calls)
		}
		j.recovers()
		j.holds(map[string]int{"u2": 2, "org": 2})
	})
}

// If the store fails while the decision is corrected, this process decides. No log keeps what was not admitted.
func TestJointCorrectionFails(t *testing.T) {
	for call, want := range []string{"take all", "merge", "settle", "settle", "take all"} {
		for _, f := range []fault{refuses, loses, late, partial, oneKey} {
			for _, cost := range []int{2, 3} {
				desc := fmt.Sprintf("call %d, %s, %s, %d units", call, want, f, cost)
				inBubble(t, desc, Local, 5, 3, func(j *jointTest) {
					j.backlogOf(1, "u1", "org")
					n := -1
					j.store.faults(func() fault {
						if n++; n == call {
							return f
						}
						return answers
					})
					if cost == 2 { // it fits
						q := j.take(store.ModeCharge, cost, "u2", "org")
						if !q.allowed() || q.from == event.Cache {
							t.Errorf("fault %d of %s: %+v", f, want, q)
						}
						j.recovers()
						j.holds(map[string]int{"u1": 1, "u2": 2, "org": 3})
						return
					}
					q := j.take(store.ModeCharge, cost, "u2", "org")
					if q.allowed() || !q.answers[0].Allowed {
						t.Errorf("fault %d of %s: %+v", f, want, q)
					}
					j.recovers()
					j.holds(map[string]int{"u1": 1, "org": 1})
				})
			}
		}
	}
}

// With an open breaker, the replay of the first log is the probe, and the other logs are replayed before the take.
func TestJointReplayIsTheProbe(t *testing.T) {
	inBubble(t, "", Local, 20, 20, func(j *jointTest) {
		j.store.down(refuses)
		for range failuresToOpen {
			j.want(event.Local, store.ModeCharge, 1, "u1", true, true)
			time.Sleep(time.Millisecond)
		}
		if j.breaker.state() != open {
			t.Fatal("the breaker is not open")
		}
		j.store.down(answers)
		j.store.asked()
		for j.breaker.state() == open {
			time.Sleep(time.Millisecond)
		}
		q := j.want(event.Store, store.ModeCharge, 1, "u1", true, true)
		if q.answers[0].State[0].Used != failuresToOpen || q.answers[1].State[0].Used != failuresToOpen {
			t.Errorf("%+v", q.answers)
		}
		if calls := j.store.asked(); calls != "merge, merge, take all" { //nolint:dupword // calls of the store
			t.Error(calls)
		}
		j.holds(map[string]int{"u1": failuresToOpen + 1, "org": failuresToOpen + 1})
	})
}

// A long backlog is replayed before the store decides again.
func TestJointLongBacklog(t *testing.T) {
	inBubble(t, "", Local, 10_000, 10_000, func(j *jointTest) {
		j.store.down(refuses)
		for range maxPart - 1 { // takes of this policy would open the breaker
			for _, names := range [][]string{{"u1", "org"}, {"u2", "org"}} {
				q := j.takes(store.ModeCharge, 1, names...)
				r := &request{takes: q.takes, answers: q.answers}
				r.setID(newID())
				j.record.take(r, new([store.MaxLimits]bool), unsent)
			}
		}
		j.take(store.ModeCharge, 1, "u1", "org")
		j.take(store.ModeCharge, 1, "u2", "org")
		synctest.Wait() // for the replays that these have started, which fail
		j.store.down(answers)
		j.want(event.Local, store.ModeCharge, 1, "u1", true, true)
		synctest.Wait()
		q := j.want(event.Store, store.ModeCharge, 1, "u1", true, true)
		if q.answers[0].State[0].Used != maxPart+1 || q.answers[1].State[0].Used != 2*maxPart+1 {
			t.Errorf("%+v", q.answers)
		}
		j.recovers()
		j.holds(map[string]int{"u1": maxPart + 2, "u2": maxPart, "org": 2*maxPart + 2})
	})
}

// An admission that comes too late for its request is undone in all logs, unless this process has decided: then the
// logs have what it has admitted.
func TestJointLateProbe(t *testing.T) {
	for _, failure := range []Failure{Open, Closed, Local} {
		lateProbe(t, failure, store.ModeCharge, 1, 1)
		lateProbe(t, failure, store.ModeUpTo, 9, 5)
	}
}

func lateProbe(t *testing.T, failure Failure, mode store.Mode, cost, units int) {
	inBubble(t, fmt.Sprintf("policy %d, %v", failure, mode), failure, 5, 6, func(j *jointTest) {
		j.store.down(refuses)
		for range failuresToOpen {
			j.take(store.ModePeek, 1, "u1", "org")
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * retryStore)
		j.store.up(3 * j.timeout)
		q := j.take(mode, cost, "u1", "org")
		if q.err == nil || q.allowed() != (failure != Closed) {
			t.Errorf("policy %d: %+v", failure, q)
		}
		time.Sleep(2 * retryStore)
		want := map[string]int{}
		if j.recovers(); failure == Local {
			want = map[string]int{"u1": units, "org": units}
		}
		j.holds(want)
	})
}

// A store whose answers take 80 % of the timeout decides again soon after an outage, under steady traffic over several
// logs of which one is common to all requests.
func TestJointSlowStoreTakesOver(t *testing.T) {
	for _, failure := range []Failure{Local, Open, Closed} {
		inBubble(t, fmt.Sprint("policy ", failure), failure, 10_000, 100_000, func(j *jointTest) {
			const delay = 80 * time.Millisecond // of 100 ms
			j.store.up(delay)
			admitted := map[string]int{}
			var mu sync.Mutex
			var all sync.WaitGroup
			stream := func(d time.Duration) (without int) {
				for i := range int(d / (10 * time.Millisecond)) {
					all.Go(func() {
						user := fmt.Sprint("u", i%10)
						q := j.take(store.ModeCharge, 1, user, "org")
						mu.Lock()
						defer mu.Unlock()
						if q.err == nil && q.allowed() || failure == Local {
							admitted[user]++
							admitted["org"]++
						}
						if q.from != event.Store || q.err != nil {
							without++
						}
					})
					time.Sleep(10 * time.Millisecond)
				}
				all.Wait()
				return without
			}
			if n := stream(time.Second); n > 0 {
				t.Errorf("%d requests without the store before the outage", n)
			}
			j.store.down(late)
			stream(2 * time.Second)
			j.store.up(delay)
			stream(5 * time.Second)
			if n := stream(2 * time.Second); n > 0 {
				t.Errorf("policy %d: %d requests without the store 5 s after the outage", failure, n)
			}
			if j.recovers(); failure == Local {
				j.holds(admitted)
			}
		})
	}
}

// A take of one log that was charged with others is settled, and a log reset, by its key.
func TestJointSettle(t *testing.T) {
	for _, f := range []fault{answers, refuses, loses, partial} {
		inBubble(t, f.String(), Local, 5, 5, func(j *jointTest) {
			j.store.down(f)
			q := j.take(store.ModeCharge, 2, "u1", "org")
			for _, take := range q.takes {
				s := store.Settlement{Key: take.Key, ID: take.ID, Cost: 1}
				if err := j.Settle(t.Context(), s, q.from == event.Local); err != nil {
					t.Fatal(err)
				}
			}
			j.want(q.from, store.ModeCharge, 4, "u2", true, true)
			j.want(q.from, store.ModeCharge, 1, "u3", true, false)
			j.recovers()
			j.holds(map[string]int{"u1": 1, "u2": 4, "org": 5})
		})
	}
}

// The caller's takes and answers stay on its stack if there is one.
func TestTakeAllocatesNothing(t *testing.T) {
	g := New(Config{Store: constant{}, Policy: "p", Failure: Local, Timeout: time.Hour, LocalKeys: 10})
	ctx, plan := g.Within(t.Context(), time.Now()), planOf(5, time.Hour)
	key, other := store.NewKey("p", "k"), store.NewKey("p", "l")
	for logs := 1; logs <= 2; logs++ {
		n := testing.AllocsPerRun(1000, func() {
			var answers [2]store.Answer
			takes := [2]store.Take{{Key: key, Plan: plan, Cost: 1}, {Key: other, Plan: plan, Cost: 1}}
			if from, err := g.Take(ctx, takes[:logs], answers[:logs]); from != event.Store || err != nil {
				t.Error(from, err)
			}
		})
		if n > 0 {
			t.Errorf("%d logs: %v allocations", logs, n)
		}
	}
}

// constant is a store that admits everything.
type constant struct{ store.Full }

func (constant) Take(_ context.Context, _ []store.Take, answers []store.Answer) error {
	for i := range answers {
		answers[i].Allowed = true
	}
	return nil
}
