package faults_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
)

const quota = 50

func TestKilled(t *testing.T) {
	server := redistest.Start(t)
	r := begin(t, "killed, restarted", "kill -9, started again after 1 s")
	defer r.end()
	l := r.limiter(core.PerHour(quota), r.client(&redis.Options{Addr: server.Addr()}))
	if before := r.burst(l, "k", quota-20); before.admitted != quota-20 {
		t.Fatal(before)
	}
	r.inject(server.Kill)
	during := r.stream(l, 200, time.Second, only("k"))()
	r.degraded(during, true)
	r.exactly("outage ", during.admitted, quota)
	r.lift(l, "k", server.Restart)
	r.logged(l, "k", quota) // the server has forgotten what was before
	after := r.burst(l, "new", 2*quota)
	r.degraded(after, false)
	r.exactly("then ", after.admitted, quota)
	if again := r.burst(l, "k", 5); again.admitted != 0 {
		t.Errorf("a second quota: %d admitted", again.admitted)
	}
	r.says("refused")
}

// What the server was sent while it stood still it executes afterwards, and it is counted once with what
// was decided meanwhile.
func TestHangs(t *testing.T) {
	server := redistest.Start(t)
	r := begin(t, "hangs", "SIGSTOP under 200 requests/s, SIGCONT")
	defer r.end()
	l := r.limiter(core.PerHour(100_000), r.client(&redis.Options{Addr: server.Addr()}))
	stands := 2 * time.Second
	if full {
		stands = 10 * time.Second
	}
	wait := r.stream(l, 200, stands+2*time.Second, only("k"))
	pass(time.Second)
	r.inject(server.Pause)
	pass(stands)
	r.lift(l, "k", server.Resume)
	all := wait()
	r.exactly("", all.admitted, all.asked)
	r.logged(l, "k", all.asked)
	r.says("deadline exceeded")
}

func TestSlowReplies(t *testing.T) {
	slow(t)
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	for _, delay := range []time.Duration{20 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond, time.Second} {
		func() {
			r := begin(t, "slow", fmt.Sprintf("a proxy delays replies by %v", delay))
			defer r.end()
			l := r.limiter(core.PerHour(100_000), r.client(&redis.Options{Addr: proxy.Addr()}))
			key := delay.String()
			r.burst(l, key, 5) // which makes connections, too
			r.inject(func() { proxy.SetDelay(delay) })
			during := r.stream(l, 200, 2*time.Second, only(key))()
			if delay < timeout {
				r.degraded(during, false)
			}
			r.exactly("", during.admitted, during.asked)
			r.lift(l, key, func() { proxy.SetDelay(0) })
			r.logged(l, key, 5+during.asked)
		}()
	}
}
