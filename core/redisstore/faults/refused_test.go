package faults_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/redisstore"
)

// A refused connection is known at once, also by a go-redis that dials again, for longer than a decision may take.
func TestRefused(t *testing.T) {
	server := redistest.Start(t)
	r := begin(t, "refused", "kill -9; five decisions, then 200 requests/s")
	defer r.end()
	l := r.limiter(core.PerHour(20), r.client(&redis.Options{Addr: server.Addr()}))
	r.warm(l, "ready", 1)
	r.inject(server.Kill)
	first := r.burst(l, "k", 5)
	during := r.stream(l, 200, 300*time.Millisecond, only("k"))()
	r.degraded(first, true)
	r.degraded(during, true)
	r.exactly("", first.admitted+during.admitted, 20)
	fastest := timeout
	for _, took := range first.took {
		fastest = min(fastest, took)
	}
	r.tellf("the fastest of the first five took %s", short(fastest))
	if fastest > timeout/2 {
		r.errorf("the fastest of the first five took %v", fastest)
	}
	r.says(redisstore.ClassRefused, "start the server")
	if strings.Contains(r.reports(), "("+redisstore.ClassTimeout+")") {
		r.errorf("the observer has heard of a timeout")
	}
	r.lift(l, "k", server.Restart)
	r.logged(l, "k", 20)
}
