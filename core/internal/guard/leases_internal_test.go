package guard

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// leased is a request that was admitted by a guard with leases.
type leased struct {
	at       time.Time
	process  int
	takes    []store.Take
	use      Use
	degraded bool
	cost     int
}

// fleet is processes with leases that draw from the same logs.
type fleet struct {
	t      *testing.T
	r      *rand.Rand
	d      time.Duration
	limits []*store.Limit // with the windows that are promised
	key    store.Key
	guards []*Guard
	links  []*faultyStore
	store  *sharedLogs

	mu   sync.Mutex
	made []*leased
	from map[event.Source]int
}

func newFleet(t *testing.T, r *rand.Rand, processes int, d time.Duration, limits ...*store.Limit) *fleet {
	f := &fleet{
		t: t, r: r, d: d, limits: limits, key: store.NewKey("p", "k"), store: newSharedLogs(),
		from: make(map[event.Source]int),
	}
	for range processes {
		link := f.store.connect()
		f.links = append(f.links, link)
		f.guards = append(f.guards, New(Config{
			Store: link, Policy: "p", Failure: Local, Timeout: 100 * time.Millisecond, DenyCache: time.Second,
			LocalKeys: 100, Lease: d, Freed: func(*store.Key) {},
		}))
	}
	time.Sleep(time.Minute) // so that an instant is not an age
	t.Cleanup(func() {
		if f.store.wrong != nil {
			t.Errorf("settlements with a wrong age: %s", f.store.wrong)
		}
	})
	return f
}

func (f *fleet) takes(cost int) (takes []store.Take) {
	for _, l := range f.limits {
		own := *l
		own.Window += f.d
		takes = append(takes, store.Take{Key: f.key, Limit: &own, Cost: cost})
	}
	return takes
}

// ask asks a process for units, and returns what the first log has answered.
func (f *fleet) ask(process, cost int) (Use, store.Answer) {
	takes := f.takes(cost)
	answers := make([]store.Answer, len(takes))
	u, from, err := f.guards[process].TakeLeased(f.t.Context(), takes, answers)
	if err != nil && from != event.Local {
		f.t.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.from[from]++; isAdmitted(takes, answers) {
		f.made = append(f.made, &leased{time.Now(), process, takes, u, from == event.Local, cost})
	}
	return u, answers[0]
}

// units returns the units that the store has in the log of a limit.
func (f *fleet) units(limit int) (n int) {
	for _, e := range f.store.logs.Log(&f.key, f.takes(1)[limit].Limit) {
		n += e.Cost
	}
	return n
}

// settle changes the cost of a request.
func (f *fleet) settle(q *leased, cost int) {
	g := f.guards[q.process]
	f.mu.Lock()
	was := q.cost
	f.mu.Unlock()
	if q.use.IsLeased() {
		if err := g.SettleLeased(f.t.Context(), q.use, q.takes[0].ID, cost); err != nil {
			f.t.Error(err)
		}
	} else {
		for i := range q.takes {
			s := store.Settlement{
				Key: f.key, Limit: q.takes[i].Limit, ID: q.takes[i].ID, Was: was, Cost: cost, Age: time.Since(q.at),
			}
			if g.Settle(f.t.Context(), s, q.degraded) != nil {
				return
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	q.cost = cost
}

// most returns by how many units a window exceeds its quota at most.
func (f *fleet) most() (over int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.limits {
		sum, first := 0, 0
		for _, q := range f.made { // in the order of their instants
			sum += q.cost
			for ; q.at.Sub(f.made[first].at) >= l.Window; first++ {
				sum -= f.made[first].cost
			}
			over = max(over, sum-l.Quota)
		}
	}
	return over
}

// Whatever is asked, undone and lost, no window of several processes with leases exceeds a quota.
func TestLeasesAreExact(t *testing.T) {
	seed := seedOf(t)
	from := make(map[event.Source]int)
	for i := range testlen.Of(6, 200) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			limits := []*store.Limit{
				{Log: "a", Quota: 100 + r.IntN(2000), Window: time.Second},
				{Log: "b", Quota: 500 + r.IntN(6000), Window: 4 * time.Second},
			}[:1+r.IntN(2)]
			f := newFleet(t, r, 1+r.IntN(3), time.Duration(10+r.IntN(40))*time.Millisecond, limits...)
			for _, link := range f.links {
				link.up(time.Duration(r.IntN(12)) * time.Millisecond)
			}
			var all sync.WaitGroup
			for p := range f.guards {
				for range 1 + r.IntN(4) {
					own := rand.New(rand.NewPCG(r.Uint64(), 0))
					all.Go(func() {
						pause := time.Duration(200+own.IntN(4000)) * time.Microsecond
						for begun := time.Now(); time.Since(begun) < 3*time.Second; {
							switch own.IntN(40) {
							case 0:
								f.ask(p, 1+own.IntN(3))
							case 1:
								f.mu.Lock()
								n := len(f.made)
								f.mu.Unlock()
								if n > 0 {
									f.mu.Lock()
									q := f.made[n-1-own.IntN(min(n, 20))]
									f.mu.Unlock()
									f.settle(q, 0)
								}
							default:
								f.ask(p, 1)
							}
							time.Sleep(time.Duration(own.Int64N(int64(2 * pause))))
						}
					})
				}
			}
			all.Wait()
			if over := f.most(); over > 0 {
				t.Errorf("seed %#x, %d: %d units over the quota", seed, i, over)
			}
			for _, g := range f.guards {
				noError(t, g.Close())
			}
			// Afterwards each log has what was used.
			for i, take := range f.takes(1) {
				want, got := 0, 0
				for _, q := range f.made {
					if time.Since(q.at) < f.limits[i].Window-100*time.Millisecond {
						want += q.cost
					}
				}
				for _, e := range f.store.logs.Log(&f.key, take.Limit) {
					if time.Since(e.At) < f.limits[i].Window-100*time.Millisecond {
						got += e.Cost
					}
				}
				if got < want-f.limits[i].Quota/4 || got > want+f.limits[i].Quota/4 {
					t.Errorf("seed %#x, %d: the log has %d units, of %d", seed, i, got, want)
				}
			}
			for source, n := range f.from {
				from[source] += n
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Log(from)
	if from[event.Lease] < 500 || from[event.Local] > 0 {
		t.Errorf("few requests were served by leases: %v", from)
	}
}

// A request that a lease serves is told how many units were used before it, and when the first of them leaves.
func TestNumbersOfALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil, 1, 20*time.Millisecond, &store.Limit{Log: "a", Quota: 1000, Window: time.Second})
		defer f.guards[0].Close()
		var last Use
		begun, before, leases := time.Now(), 0, 0
		for n := range 200 {
			u, a := f.ask(0, 1)
			if u.IsLeased() && u != last {
				leases++
			}
			switch leaves := time.Second + 20*time.Millisecond - time.Since(begun); {
			case n > 0 && a.Reset != leaves:
				t.Errorf("request %d: the first unit leaves in %v, want %v", n, a.Reset, leaves)
			case a.Used < n || leases == 1 && a.Used > n || u.IsLeased() && u == last && a.Used != before+1:
				t.Errorf("request %d: %d units are used, and the request before said %d", n, a.Used, before)
			}
			last, before = u, a.Used
			time.Sleep(time.Millisecond)
		}
	})
}

// A lease of a process that has stopped is settled, and what was not used comes back.
func TestLeaseIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil, 1, 20*time.Millisecond, &store.Limit{Log: "a", Quota: 1000, Window: time.Second})
		for range 200 {
			f.ask(0, 1)
			time.Sleep(time.Millisecond)
		}
		if f.from[event.Lease] < 100 {
			t.Fatalf("%v", f.from)
		}
		if s := f.guards[0].Stats(); s.Leases != 1 || s.Booked == 0 {
			t.Errorf("%+v, want a lease in hand", s)
		}
		time.Sleep(100 * time.Millisecond)
		if used := f.units(0); used != 200 {
			t.Errorf("the log has %d units of 200", used)
		}
		if s := f.guards[0].Stats(); s.Leases != 0 || s.Booked != 0 {
			t.Errorf("%+v after the lease has ended", s)
		}
		time.Sleep(time.Second) // for the holder to go
		if n := f.guards[0].leases.count.Load(); n != 0 {
			t.Errorf("%d holders are left", n)
		}
		f.guards[0].Close()
	})
}

// A lease is of one list of takes, and of a key whose text a server writes over when the request has been served. Close
// settles it, also while it is taken.
func TestWhoseLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil, 1, 20*time.Millisecond, &store.Limit{Log: "a", Quota: 1000, Window: time.Hour})
		g, own, memory := f.guards[0], f.key, []byte("k")
		for range 200 {
			memory[0] = 'k'
			f.key = store.NewKey("p", unsafe.String(&memory[0], 1))
			f.ask(0, 1)
			memory[0] = 'x'
			time.Sleep(time.Millisecond)
		}
		f.key = own
		if f.from[event.Lease] < 100 {
			t.Fatalf("%v", f.from)
		}
		leased := f.from[event.Lease]
		f.limits[0].Quota--
		if f.ask(0, 1); f.from[event.Lease] > leased {
			t.Error("a lease has served a request with another quota")
		}
		f.limits[0].Quota++
		time.Sleep(20 * time.Millisecond) // until the lease in hand has ended
		f.links[0].up(50 * time.Millisecond)
		var all sync.WaitGroup
		all.Go(func() { f.ask(0, 1) })
		synctest.Wait()
		noError(t, g.Close())
		all.Wait()
		if used := f.units(0); used != 202 {
			t.Errorf("the log has %d units of 202", used)
		}
	})
}

// A reset leaves what is owed of a lease that the store has not been told to forget.
func TestResetOfAnOwedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil, 1, 20*time.Millisecond, &store.Limit{Log: "a", Quota: 100_000, Window: time.Hour})
		g := f.guards[0]
		defer g.Close()
		for n := 0; n < 200 || g.Stats().Booked == 0; n++ {
			f.ask(0, 1)
			time.Sleep(time.Millisecond)
		}
		f.links[0].down(refuses)
		for g.Stats().Leases > 0 { // until it has ended
			time.Sleep(100 * time.Microsecond)
		}
		h := g.leases.find(&f.key)
		g.endLease(t.Context(), h) // which fails
		f.links[0].up(0)
		if err := g.Reset(t.Context(), f.key, []*store.Limit{f.takes(1)[0].Limit}); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		if got, want := f.units(0), h.last.Units-h.last.Left(); got != want || want == h.last.Units {
			t.Errorf("of a lease of %d units the log has %d, want %d", h.last.Units, got, want)
		}
	})
}

// A lease whose answer comes after its end has served one request, and what is left of it comes back.
func TestLateLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil, 1, 20*time.Millisecond, &store.Limit{Log: "a", Quota: 100_000, Window: time.Minute})
		f.links[0].up(30 * time.Millisecond)
		for range 500 {
			go f.ask(0, 1)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := f.units(0); got != 500 || f.from[event.Lease] != 0 {
			t.Errorf("the log has %d units of 500: %v", got, f.from)
		}
		f.guards[0].Close()
	})
}

// A list with few requests has no lease, and where little is left, no request waits for another one.
func TestWithoutLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, nil, 1, 20*time.Millisecond, &store.Limit{Log: "a", Quota: 300, Window: time.Minute})
		g := f.guards[0]
		defer g.Close()
		for range 100 {
			f.ask(0, 1)
			time.Sleep(time.Millisecond)
		}
		if g.leases.count.Load() != 1 {
			t.Fatal("no holder")
		}
		for range 50 {
			f.ask(0, 1)
			time.Sleep(25 * time.Millisecond)
		}
		if n := g.leases.count.Load(); n != 0 {
			t.Errorf("%d holders of a list with a request in 25 ms", n)
		}
		for len(f.made) < 296 {
			f.ask(0, 1)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond) // until the lease in hand has ended
		f.links[0].up(10 * time.Millisecond)
		f.ask(0, 1) // asks for a lease, and gets a unit
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				begun := time.Now()
				f.ask(0, 1)
				if took := time.Since(begun); took > 10*time.Millisecond {
					t.Errorf("a request took %v", took)
				}
			})
		}
		all.Wait()
	})
}

// With leases a denial is remembered for as long as one at most, denials that count are recorded, and Reset leaves what
// other processes may have in hand.
func TestDenialsBesideLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const d = 20 * time.Millisecond
		f := newFleet(t, nil, 1, d, &store.Limit{Log: "a", Quota: 200, Window: time.Minute})
		g, limit := f.guards[0], f.takes(1)[0].Limit
		defer g.Close()
		for range 400 {
			f.ask(0, 1)
		}
		clear(f.from)
		f.ask(0, 1)
		time.Sleep(d)
		f.ask(0, 1)
		if f.from[event.Cache] != 1 || f.from[event.Store] != 1 {
			t.Errorf("%v", f.from)
		}
		time.Sleep(time.Second)
		for range 100 { // enough for a lease
			takes, answers := f.takes(1), make([]store.Answer, 1)
			takes[0].Mode = store.ModeChargeDenied
			if _, _, err := g.TakeLeased(t.Context(), takes, answers); err != nil || answers[0].Allowed {
				t.Errorf("%+v, %v", answers, err)
			}
		}
		recorded := 0
		for _, e := range f.store.logs.Log(&f.key, limit) {
			if time.Since(e.At) == 0 {
				recorded++
			}
		}
		if recorded != 100 {
			t.Errorf("%d of 100 denials are recorded", recorded)
		}
		time.Sleep(d)
		f.store.logs.Take([]store.Take{{Key: f.key, Limit: limit, Cost: 3, ID: newID(), Mode: store.ModeRecord}},
			make([]store.Answer, 1))
		time.Sleep(d / 2)
		noError(t, g.Reset(t.Context(), f.key, []*store.Limit{limit}))
		if left := f.store.logs.Log(&f.key, limit); len(left) != 1 || left[0].Cost != 3 {
			t.Errorf("Reset has left %+v", left)
		}
	})
}

// The settlements of uses of a lease are exact, before and after it has ended, and in an outage that has ended it.
func TestSettleUsesOfALease(t *testing.T) {
	const inHand, ended, outage, endedByOutage = 0, 1, 2, 3
	for state := inHand; state <= endedByOutage; state++ {
		for _, costs := range [][]int{{0}, {3}, {1}, {3, 0}, {3, 2}, {2, 5}, {0, 4}} {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, nil, 1, 20*time.Millisecond,
					&store.Limit{Log: "a", Quota: 1000, Window: time.Minute},
					&store.Limit{Log: "b", Quota: 2000, Window: time.Hour})
				for f.from[event.Lease] < 20 {
					f.ask(0, 1)
					time.Sleep(time.Millisecond)
				}
				q := f.made[len(f.made)-1]
				switch state {
				case ended:
					time.Sleep(200 * time.Millisecond)
				case outage:
					time.Sleep(200 * time.Millisecond)
					f.links[0].down(refuses)
					f.ask(0, 1)
				case endedByOutage:
					f.links[0].down(refuses)
					time.Sleep(200 * time.Millisecond)
				}
				for i, cost := range costs {
					f.settle(q, cost)
					if i > 0 && costs[i-1] == 0 {
						q.cost = 0 // it stays undone
					}
				}
				f.links[0].up(0)
				time.Sleep(5 * time.Second)
				for i := range f.limits {
					if want, got := len(f.made)-1+q.cost, f.units(i); got != want {
						t.Errorf("state %d, costs %v: the log has %d units, want %d", state, costs, got, want)
					}
				}
				noError(t, f.guards[0].Close())
			})
		}
	}
}

// A lease ends 0.9 d after the instant before its takes were sent, however late the answer is, when the monotonic or
// the wall clock has reached that. Moving the instant from which the monotonic clock counts moves it against the other.
func TestEndOfALease(t *testing.T) {
	const d, late = 100 * time.Millisecond, 60 * time.Millisecond
	for _, moved := range []time.Duration{0, 20 * time.Millisecond, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, nil, 1, d, &store.Limit{Log: "a", Quota: 100_000, Window: time.Minute})
			g := f.guards[0]
			defer g.Close()
			for range 200 {
				f.ask(0, 1)
				time.Sleep(time.Millisecond)
			}
			time.Sleep(2 * d) // the lease in hand is settled
			f.links[0].up(late)
			for range 200 {
				go f.ask(0, 1) // some wait for the answer
				time.Sleep(8 * time.Millisecond)
			}
			f.links[0].up(0)
			time.Sleep(2 * d)
			synctest.Wait()
			last := make(map[*held]time.Time)
			for _, q := range f.made {
				if q.use.IsLeased() {
					last[q.use.of] = q.at
				}
			}
			for l, at := range last {
				begun := g.leases.start.Add(l.sent)
				if lasted := at.Sub(begun); lasted >= d/10*9 && l.Units > 1 {
					t.Errorf("a unit was spent %v after a lease of %v was sent", lasted, d)
				}
			}
			for range 200 {
				f.ask(0, 1)
				time.Sleep(time.Millisecond)
			}
			h := g.leases.find(&f.key)
			for old := h.hand; h.hand == old; time.Sleep(time.Millisecond) {
				f.ask(0, 1)
			}
			begun, takes, got := time.Now(), f.takes(1), make([]store.Answer, 1)
			synctest.Wait()
			g.leases.start = g.leases.start.Add(-moved)
			for h.spend(takes, got).IsLeased() {
				time.Sleep(time.Millisecond)
			}
			synctest.Wait()
			g.leases.start = g.leases.start.Add(moved)
			lasted, want := time.Since(begun), d/10*9-max(moved, 0)
			if lasted > want || h.hand.Left() > 0 && lasted < want-2*time.Millisecond {
				t.Errorf("moved by %v: spent for %v, want %v", moved, lasted, want)
			}
		})
	}
}

// In an outage what was used of a lease counts in this process, and afterwards the store has it once.
func TestLeaseInAnOutage(t *testing.T) {
	for _, fault := range []fault{refuses, loses, leaves, drops} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, nil, 1, 20*time.Millisecond, &store.Limit{Log: "a", Quota: 400, Window: time.Minute})
			for f.from[event.Lease] < 50 {
				f.ask(0, 1)
				time.Sleep(time.Millisecond)
			}
			f.links[0].down(fault)
			before := len(f.made)
			for range 1000 {
				f.ask(0, 1)
				time.Sleep(time.Millisecond)
			}
			if n := len(f.made) - before; n > 400 {
				t.Errorf("%d: %d units admitted in an outage, of 400", fault, n)
			}
			f.links[0].up(0)
			time.Sleep(10 * time.Second)
			if got := f.units(0); got != len(f.made) {
				t.Errorf("%d: the log has %d units, want %d", fault, got, len(f.made))
			}
			noError(t, f.guards[0].Close())
		})
	}
}

// Requests of several keys, units or algorithms are never leased.
func TestLeasable(t *testing.T) {
	log := &store.Limit{Log: "a", Quota: 10, Window: time.Minute}
	other := *log
	other.Log = "b"
	permits := &store.Limit{Log: "c", Quota: 10, Window: time.Minute, Permits: true}
	bucket := &store.Limit{Log: "d", Quota: 10, Window: time.Minute, Algorithm: store.TokenBucket, Refill: 1}
	k, org := store.NewKey("p", "k"), store.NewKey("p", "org")
	for _, c := range []struct {
		takes []store.Take
		want  bool
	}{
		{[]store.Take{{Key: k, Limit: log, Cost: 1}}, true},
		{[]store.Take{{Key: k, Limit: log, Cost: 1}, {Key: k, Limit: &other, Cost: 1}}, true},
		{[]store.Take{{Key: k, Limit: log, Cost: 1, Mode: store.ModeChargeDenied}}, true},
		{[]store.Take{{Key: k, Limit: log, Cost: 2}}, false},
		{[]store.Take{{Key: k, Limit: log, Cost: 1, Mode: store.ModePeek}}, false},
		{[]store.Take{{Key: k, Limit: log, Cost: 1, Mode: store.ModeAtMost}}, false},
		{[]store.Take{{Key: k, Limit: log, Cost: 1, Mode: store.ModeRecord}}, false},
		{[]store.Take{{Key: k, Limit: log, Cost: 1}, {Key: org, Limit: log, Cost: 1}}, false},
		{[]store.Take{{Key: k, Limit: log, Cost: 1}, {Key: k, Limit: permits, Cost: 1}}, false},
		{[]store.Take{{Key: k, Limit: bucket, Cost: 1}}, false},
	} {
		if got := isLeasable(c.takes); got != c.want {
			t.Errorf("%v: %t", fmt.Sprint(c.takes), got)
		}
	}
}
