package store_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// MapStore keeps logs in a map behind a mutex. It has the three methods that every limiter needs.
type MapStore struct {
	mu   sync.Mutex
	logs map[string]*log
}

type log struct {
	window  time.Duration
	entries []entry // oldest first
}

type entry struct {
	at    time.Time
	units int
}

// Validate accepts several logs in a request.
func (s *MapStore) Validate(limits ...*store.Limit) error { return store.SlidingLogs(limits) }

// Take decides under the lock, so that two requests never get the same last unit.
func (s *MapStore) Take(_ context.Context, takes []store.Take, answers []store.Answer) error {
	if err := store.ValidateTakes(takes, answers); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, admitted, granted := time.Now(), true, takes[0].Cost
	for i := range takes {
		t, used := &takes[i], s.log(&takes[i].Key, takes[i].Limit, now).units()
		if t.Mode == store.ModeAtMost && !t.Limit.Unlimited {
			granted = min(granted, t.Grant(t.Limit.Quota-used))
		}
		allowed := t.Mode == store.ModeRecord || t.Limit.HasRoom(used, asked(t))
		answers[i] = store.Answer{Known: true, Allowed: allowed, Used: used}
		admitted = admitted && allowed
	}
	for i := range takes {
		s.log(&takes[i].Key, takes[i].Limit, now).finish(&takes[i], &answers[i], now, admitted, granted)
	}
	looked := 0
	for name, l := range s.logs { // in a random order; so empty logs do not stay
		if l.drop(l.window, now); len(l.entries) == 0 {
			delete(s.logs, name)
		}
		if looked++; looked > len(takes) {
			break
		}
	}
	return nil
}

// asked is how many units must fit.
func asked(t *store.Take) int {
	if t.Mode == store.ModeAtMost {
		return 1
	}
	return t.Cost
}

// finish records a take as its mode says, and answers what is known only then.
func (l *log) finish(t *store.Take, a *store.Answer, now time.Time, admitted bool, granted int) {
	units, fits := t.Cost, !t.Limit.NeverFits(asked(t))
	if t.Mode == store.ModeAtMost {
		a.Granted, units = granted, granted
	}
	denied := t.Mode == store.ModeChargeDenied && !a.Allowed && fits
	if denied || admitted && t.Mode != store.ModePeek {
		l.entries = append(l.entries, entry{now, units})
		trims := denied || t.Mode == store.ModeRecord || t.Limit.Unlimited
		for trims && l.units()-l.entries[0].units >= t.Limit.Keeps(t.Mode) {
			l.entries = l.entries[1:]
		}
	}
	if len(l.entries) > 0 {
		a.Reset = l.window - now.Sub(l.entries[0].at)
	}
	for i, excess := 0, l.units()+asked(t)-t.Limit.Quota; !a.Allowed && fits && excess > 0; i++ {
		excess -= l.entries[i].units
		a.Retry = l.window - now.Sub(l.entries[i].at)
	}
}

func (l *log) units() (n int) {
	for _, e := range l.entries {
		n += e.units
	}
	return n
}

// drop removes entries of that age, and older ones.
func (l *log) drop(age time.Duration, now time.Time) {
	for len(l.entries) > 0 && now.Sub(l.entries[0].at) >= age {
		l.entries = l.entries[1:]
	}
}

// log returns a log without what has left its window.
func (s *MapStore) log(k *store.Key, l *store.Limit, now time.Time) *log {
	name := k.String() + " " + l.Log
	if s.logs[name] == nil {
		s.logs[name] = &log{window: l.Window}
	}
	s.logs[name].drop(l.Window, now)
	return s.logs[name]
}

// Reset keeps what is younger than young.
func (s *MapStore) Reset(_ context.Context, key store.Key, limits []*store.Limit, young time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range limits {
		s.log(&key, l, time.Now()).drop(young, time.Now())
	}
	return key.Validate()
}

func NewMapStore() *MapStore { return &MapStore{logs: make(map[string]*log)} }

// A whole store in under 120 lines, which passes coretest.Store. A request takes time in proportion to the entries of
// its logs.
func Example() {
	limiter, err := core.New(core.PerMinute(2), core.ByText(), core.WithStore(NewMapStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		decision, err := limiter.Allow(context.Background(), "customer 7")
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(decision.Allowed, decision.Remaining, decision.RetryAfter.Round(time.Minute))
	}
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 1m0s
}
