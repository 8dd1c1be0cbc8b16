package guard

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// breakerTest is a breaker and the changes that it has announced.
type breakerTest struct {
	*testing.T
	*breaker
	changes []bool
}

// testBreaker runs f with a closed breaker, on a clock that only sleeping advances.
func testBreaker(t *testing.T, f func(b *breakerTest)) {
	synctest.Test(t, func(t *testing.T) {
		b := &breakerTest{T: t}
		b.breaker = &breaker{
			start: time.Now(), onSuccess: func() {},
			onChange: func(open bool) { b.changes = append(b.changes, open) },
		}
		f(b)
	})
}

func (b *breakerTest) admitted() pass {
	b.Helper()
	p, ok := b.admit()
	if !ok {
		b.Fatal("a call is not admitted")
	}
	return p
}

func (b *breakerTest) refused() {
	b.Helper()
	if _, ok := b.admit(); ok {
		b.Fatal("a call is admitted")
	}
}

// fail makes n calls, one after the other, that fail.
func (b *breakerTest) fail(n int) {
	b.Helper()
	for range n {
		b.failure(b.admitted())
	}
}

func (b *breakerTest) want(want state, changes ...bool) {
	b.Helper()
	if got := b.state(); got != want {
		b.Fatalf("state %d, want %d", got, want)
	}
	if len(b.changes) != len(changes) {
		b.Fatalf("changes %v, want %v", b.changes, changes)
	}
	for i := range changes {
		if b.changes[i] != changes[i] {
			b.Fatalf("changes %v, want %v", b.changes, changes)
		}
	}
}

func TestBreakerOpensAfterConsecutiveFailures(t *testing.T) {
	testBreaker(t, func(b *breakerTest) {
		b.fail(failuresToOpen - 1)
		b.want(closed)
		b.fail(1)
		b.want(open, true)
		b.refused()
	})
}

func TestBreakerSuccessResetsCount(t *testing.T) {
	testBreaker(t, func(b *breakerTest) {
		for range 2 {
			b.fail(failuresToOpen - 1)
			b.success(b.admitted())
			b.fail(failuresToOpen - 1)
			b.excuse()
			b.fail(failuresToOpen - 2)
			b.excuse() // which it does only once
			b.want(closed)
			b.success(b.admitted())
		}
		b.fail(failuresToOpen - 1)
		b.want(closed)
		b.fail(1)
		b.want(open, true)
	})
}

// Failures of calls that were in flight when another failed count as one with it.
func TestBreakerCoincidentFailures(t *testing.T) {
	testBreaker(t, func(b *breakerTest) {
		for round := range failuresToOpen {
			b.want(closed)
			var passes []pass
			for range 100 {
				passes = append(passes, b.admitted())
			}
			bypassed := pass{begun: b.now(), bypassed: true}
			time.Sleep(time.Millisecond)
			for i, p := range passes {
				if b.failure(p); round == failuresToOpen-1 {
					b.want(open, true)
				} else if i%10 == 0 {
					b.failure(bypassed)
					time.Sleep(time.Millisecond)
				}
			}
		}
		b.want(open, true)
	})
}

// The wait before a probe is retryStore and a jitter. One probe is in flight at a time.
func TestBreakerProbe(t *testing.T) {
	testBreaker(t, func(b *breakerTest) {
		b.fail(failuresToOpen)
		for range 3 {
			time.Sleep(retryStore - 1)
			b.want(open, true)
			b.refused()
			time.Sleep(retryStore/2 + 1)
			b.want(halfOpen, true)
			p := b.admitted()
			if !p.probe {
				t.Fatal("the call of an open breaker is not its probe")
			}
			b.want(halfOpen, true)
			b.refused()
			time.Sleep(time.Hour) // the probe takes long
			b.refused()
			b.failure(p)
			b.want(open, true)
			b.refused()
		}
		time.Sleep(2 * retryStore)
		b.success(b.admitted())
		b.want(closed, true, false)
		b.fail(failuresToOpen - 1) // the count begins anew
		b.want(closed, true, false)
		b.fail(1)
		b.want(open, true, false, true)
	})
}

// The outcome of a call that began before the breaker changed has no effect after the change.
func TestBreakerIgnoresOutcomesFromBeforeAChange(t *testing.T) {
	testBreaker(t, func(b *breakerTest) {
		bypassed := pass{begun: b.now(), bypassed: true}
		time.Sleep(time.Millisecond)
		var early []pass // at the instant of the change, so that their failures are not coincident
		for range 4 * failuresToOpen {
			early = append(early, b.admitted())
		}
		fail := func() {
			for _, p := range early {
				b.failure(p)
				b.failure(bypassed)
			}
		}
		b.fail(failuresToOpen)
		b.success(early[0])
		fail()
		b.want(open, true)
		time.Sleep(2 * retryStore)
		probe := b.admitted()
		b.success(early[2])
		fail()
		b.want(halfOpen, true)
		b.refused() // the probe is still in flight
		b.success(probe)
		fail()
		b.want(closed, true, false)
		b.fail(failuresToOpen - 1)
		b.success(early[4])
		b.fail(1)
		b.want(open, true, false, true)
	})
}

// Calls bypass the breaker until one fails, and again after one that began later has succeeded.
func TestBreakerBypass(t *testing.T) {
	testBreaker(t, func(b *breakerTest) {
		bypasses := b.isBypassed
		fail := func() { b.failure(pass{begun: b.now(), bypassed: true}) }
		if !bypasses() {
			t.Error("calls do not bypass a new breaker")
		}
		early := b.admitted()
		for range failuresToOpen - 1 {
			fail()
		}
		b.success(early)
		if bypasses() {
			t.Error("calls bypass the breaker after a success of a call that began before a failure")
		}
		b.success(b.admitted())
		if !bypasses() {
			t.Error("calls do not bypass the breaker after a success")
		}
		for range failuresToOpen {
			b.want(closed)
			if fail(); bypasses() {
				t.Error("calls bypass the breaker after a failure")
			}
		}
		b.want(open, true)
		before := b.failures.Load()
		for range failuresToOpen {
			fail()
		}
		if b.failures.Load() != before+failuresToOpen || bypasses() {
			t.Error("failures while the breaker is open are not counted, or calls bypass it")
		}
		b.want(open, true)
	})
}

// breakerModel is a plain breaker for calls in sequence. It notes instants and has no locks.
type breakerModel struct {
	counted []time.Duration // failures since the last success, coincident ones left out
	last    time.Duration   // the latest failure that was counted, ever
	open    bool
	wait    time.Duration // when it opened, or a probe failed
	probing bool
	changes int
}

type modelCall struct {
	pass
	changes int // of the model when the call began
	begun   time.Duration
}

func (m *breakerModel) change(open bool) {
	m.open, m.probing, m.counted = open, false, nil
	m.changes++
}

func (m *breakerModel) fail(c modelCall, now time.Duration) {
	switch {
	case c.changes != m.changes:
	case c.probe:
		m.probing, m.wait, m.last = false, now, now
	case c.begun >= m.last:
		m.last = now
		if m.counted = append(m.counted, now); len(m.counted) == failuresToOpen {
			m.wait = now
			m.change(true)
		}
	}
}

func (m *breakerModel) succeed(c modelCall) {
	if c.changes == m.changes {
		if m.counted = nil; c.probe {
			m.change(false)
		}
	}
}

// check compares whether the breaker has admitted a call. Within the jitter of the wait it may do either.
func (m *breakerModel) check(t *testing.T, now time.Duration, p pass, admitted bool) {
	t.Helper()
	waited := now - m.wait
	switch {
	case !m.open && (!admitted || p.probe):
		t.Fatalf("closed: admitted %t, as a probe %t", admitted, p.probe)
	case m.open && admitted && (m.probing || waited < retryStore || !p.probe):
		t.Fatalf("open: admitted after %v; another probe %t, this is one %t", waited, m.probing, p.probe)
	case m.open && !admitted && !m.probing && waited >= retryStore*3/2:
		t.Fatalf("open: not admitted after %v", waited)
	}
	m.probing = m.probing || m.open && admitted
}

// A random sequence of calls and outcomes has the effect that a plain model predicts.
func TestBreakerAgainstModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	changes := 0
	for walk := range uint64(50) {
		testBreaker(t, func(b *breakerTest) {
			r := rand.New(rand.NewPCG(seed, walk))
			var m breakerModel
			var calls []modelCall
			for range 2000 {
				m.step(b, r, &calls)
				if got := b.state(); (got == closed) == m.open || len(b.changes) != m.changes {
					t.Fatalf("walk %d: state %d, want open %t, after %d changes, want %d",
						walk, got, m.open, len(b.changes), m.changes)
				}
			}
			changes += m.changes
		})
	}
	if changes < 100 {
		t.Errorf("%d changes: this test has tested little", changes)
	}
}

// step begins a call or ends one of those in flight.
func (m *breakerModel) step(b *breakerTest, r *rand.Rand, calls *[]modelCall) {
	if r.IntN(2) == 0 { // otherwise it happens at the same instant as the last step
		time.Sleep(time.Duration(r.IntN(int(200 * time.Millisecond))))
	}
	now := b.now()
	if len(*calls) > 0 && r.IntN(5) >= 2 {
		m.finish(b, r, calls, now)
		return
	}
	p, ok := b.admit()
	if m.check(b.T, now, p, ok); ok {
		*calls = append(*calls, modelCall{p, m.changes, now})
	}
}

// finish reports a random outcome of one of the calls in flight.
func (m *breakerModel) finish(b *breakerTest, r *rand.Rand, calls *[]modelCall, now time.Duration) {
	i := r.IntN(len(*calls))
	c := (*calls)[i]
	(*calls)[i] = (*calls)[len(*calls)-1]
	*calls = (*calls)[:len(*calls)-1]
	switch n := r.IntN(20); {
	case n < 2:
		b.success(c.pass)
		m.succeed(c)
	default:
		b.failure(c.pass)
		m.fail(c, now)
	}
}
