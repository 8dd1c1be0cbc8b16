package faults_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/redisserver"
	"github.com/sashlimit/sash/core/redisstore"
)

const quota = 50

func TestKilled(t *testing.T) {
	server := redisserver.Start(t)
	r := begin(t, "killed, restarted", "kill -9, started again after 1 s")
	r.timeout = 10 * time.Second // since newer versions of go-redis dial again, for up to a second
	defer r.end()
	l := r.limiter(core.PerHour(quota), r.client(&redis.Options{Addr: server.Addr()}), longTimeout)
	if before := r.warm(l, "k", quota-20); before.admitted != quota-20 {
		t.Fatal(before)
	}
	// The server has forgotten what was before.
	r.outage(l, quota, time.Second, server.Kill, server.Restart, quota, redisstore.ClassRefused)
	after := r.burst(l, "new", 2*quota)
	r.degraded(after, false)
	r.exactly("then ", after.admitted, quota)
	if again := r.burst(l, "k", 5); again.admitted != 0 {
		r.errorf("a second quota: %d admitted", again.admitted)
	}
}

// What the server was sent while it stood still it executes afterwards, and it is counted once with what
// was decided meanwhile.
func TestHangs(t *testing.T) {
	server := redisserver.Start(t)
	r := begin(t, "hangs", "SIGSTOP under 200 requests/s, SIGCONT")
	defer r.end()
	l := r.limiter(core.PerHour(100_000), r.client(&redis.Options{Addr: server.Addr()}))
	stands := 2 * time.Second
	if !testing.Short() {
		stands = 10 * time.Second
	}
	wait := r.stream(l, 200, stands+2*time.Second, only("k"))
	pass(time.Second)
	r.inject(server.Pause)
	pass(stands)
	r.lift(l, "k", server.Resume)
	all := wait()
	r.exactly("", all.admitted, all.asked)
	r.bounded()
	r.logged(l, "k", all.asked)
	r.says(redisstore.ClassTimeout)
}

func TestSlowReplies(t *testing.T) {
	slow(t)
	server := redisserver.Start(t)
	proxy := redisserver.StartProxy(t, server.Addr())
	for _, delay := range []time.Duration{
		20 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond, time.Second,
	} {
		func() {
			r := begin(t, "slow", fmt.Sprintf("a proxy delays replies by %v", delay))
			defer r.end()
			rdb := r.client(&redis.Options{Addr: proxy.Addr()})
			var opts []core.Option
			if delay < timeout {
				opts = append(opts, longTimeout)
			}
			l := r.limiter(core.PerHour(100_000), rdb, opts...)
			key := delay.String()
			r.warm(l, key, 5)
			r.connect(rdb) // a new one takes two round trips more than are left
			r.inject(func() { proxy.SetDelay(delay) })
			during := r.stream(l, 200, 2*time.Second, only(key))()
			if delay < timeout {
				r.degraded(during, false)
				r.prompt()
			}
			r.exactly("", during.admitted, during.asked)
			r.lift(l, key, func() { proxy.SetDelay(0) })
			r.logged(l, key, 5+during.asked)
		}()
	}
}

// A reply that is lost takes the connection with it. With go-redis as it is there is no time to send the command
// again; with a shorter ReadTimeout it does.
func TestLostReplies(t *testing.T) {
	server := redisserver.Start(t)
	proxy := redisserver.StartProxy(t, server.Addr())
	for _, c := range []struct {
		how  string
		read time.Duration
	}{
		{"a proxy swallows every reply", 0},
		{"the same for 20 ms of 100, ReadTimeout 15 ms", 15 * time.Millisecond},
	} {
		func() {
			r := begin(t, "lost replies", c.how)
			defer r.end()
			l := r.limiter(core.PerHour(100_000), r.client(&redis.Options{Addr: proxy.Addr(), ReadTimeout: c.read}))
			key := c.how
			r.warm(l, key, 5)
			var during *tally
			r.inject(func() { proxy.DropReplies(true) })
			if c.read == 0 {
				during = r.stream(l, 200, time.Second, only(key))()
				r.degraded(during, true)
			} else {
				wait := r.stream(l, 200, 2*time.Second, only(key))
				for range 20 {
					pass(20 * time.Millisecond)
					proxy.DropReplies(false)
					pass(80 * time.Millisecond)
					proxy.DropReplies(true)
				}
				proxy.DropReplies(false)
				during = wait()
			}
			r.exactly("", during.admitted, during.asked)
			r.lift(l, key, func() { proxy.DropReplies(false) })
			r.logged(l, key, 5+during.asked)
		}()
	}
}

func TestResetMidReply(t *testing.T) {
	server := redisserver.Start(t)
	proxy := redisserver.StartProxy(t, server.Addr())
	r := begin(t, "reset mid-reply", "a proxy sends half a reply, then RST")
	defer r.end()
	l := r.limiter(core.PerHour(100_000), r.client(&redis.Options{Addr: proxy.Addr()}), longTimeout)
	r.burst(l, "k", 5)
	r.inject(func() {})
	during := new(tally)
	for range 100 {
		proxy.CutReply()
		r.ask(l, "k", during)
	}
	r.degraded(during, false) // go-redis sends the command again
	r.exactly("", during.admitted, during.asked)
	r.lift(l, "k", func() {})
	r.logged(l, "k", 5+during.asked)
}

func TestTrickle(t *testing.T) {
	slow(t)
	server := redisserver.Start(t)
	proxy := redisserver.StartProxy(t, server.Addr())
	for _, each := range []time.Duration{time.Millisecond, 20 * time.Millisecond} {
		func() {
			r := begin(t, "trickle", fmt.Sprintf("a proxy passes on a byte each %v", each))
			defer r.end()
			var opts []core.Option
			if each == time.Millisecond {
				opts = append(opts, longTimeout)
			}
			l := r.limiter(core.PerHour(100_000), r.client(&redis.Options{Addr: proxy.Addr()}), opts...)
			key := each.String()
			r.warm(l, key, 5)
			r.inject(func() { proxy.Trickle(each) })
			during := r.stream(l, 20, time.Second, only(key))()
			r.degraded(during, each == 20*time.Millisecond)
			r.exactly("", during.admitted, during.asked)
			r.lift(l, key, func() { proxy.Trickle(0) })
			r.logged(l, key, 5+during.asked)
		}()
	}
}

func TestBlackHole(t *testing.T) {
	slow(t)
	server := redisserver.Start(t)
	proxy := redisserver.StartProxy(t, server.Addr())
	r := begin(t, "black hole", "a proxy swallows both directions for 2 s")
	defer r.end()
	l := r.limiter(core.PerHour(quota), r.client(&redis.Options{Addr: proxy.Addr()}))
	r.warm(l, "k", 5)
	end := func() { proxy.BlackHole(false) }
	r.outage(l, quota, 2*time.Second, func() { proxy.BlackHole(true) }, end, 5+quota)
}

// The server is paused half of the time, but never for as long as a decision may take.
func TestSlowDeath(t *testing.T) {
	slow(t)
	server := redisserver.Start(t)
	r := begin(t, "slow death", "STOP for 50 ms of every 100 ms, 5 s, FailClosed")
	defer r.end()
	rdb := r.client(&redis.Options{Addr: server.Addr()})
	l := r.limiter(core.PerHour(quota), rdb, core.WithFailure(core.FailClosed))
	r.burst(l, "warm", 5)
	r.inject(func() {})
	wait := r.stream(l, 200, 5*time.Second, only("k"))
	var longer time.Duration // than it was to stand still
	for range 50 {
		paused := time.Now()
		server.Pause()
		pass(50 * time.Millisecond)
		server.Resume()
		longer += time.Since(paused) - 50*time.Millisecond
		pass(50 * time.Millisecond)
	}
	during := wait()
	r.lift(l, "k", func() {})
	r.logged(l, "k", quota)
	if during.failed == 0 {
		r.exactly("", during.admitted, quota)
	} else { // what was executed too late for its answer was refused
		r.atMost("", during.admitted, quota)
		if during.admitted < quota-during.failed {
			r.errorf("%d admitted and %d refused, want %d at least of both", during.admitted, during.failed, quota)
		}
	}
	// Where the machine has stopped the server for longer, the breaker has opened, for a second or more each time. One
	// that flaps would have many requests wait in vain.
	vain := 0
	for _, took := range during.took {
		if took >= timeout {
			vain++
		}
	}
	if vain > during.asked/10+int(200*(longer+clock.Slack()).Seconds()) {
		r.errorf("%d of %d have waited in vain: the breaker flaps", vain, during.asked)
	}
}
