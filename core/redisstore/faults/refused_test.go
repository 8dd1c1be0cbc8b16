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

// A refused connection is told from a server that does not answer, also by a go-redis that dials again, for longer than
// a decision may take.
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
	r.says(redisstore.ClassRefused, "start the server")
	if strings.Contains(r.reports(), "("+redisstore.ClassTimeout+")") {
		r.errorf("the observer has heard of a timeout")
	}
	r.lift(l, "k", server.Restart)
	r.logged(l, "k", 20)
}
