package redisserver

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"
)

// Ports are taken from below the range that systems use for outgoing
// connections. A port from within could be taken by any client while its server
// is down, and the server could not come back. The bus of a cluster node is
// busOffset above its port and must be below that range too.
const (
	firstPort = 10_000
	lastPort  = 21_999
	busOffset = 10_000
)

// freePort finds a port that is free now, together with its bus port.
func freePort(tb testing.TB) int {
	tb.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if isFree(port) && isFree(port+busOffset) {
			return port
		}
	}
	tb.Fatal("redisserver: no free port")
	return 0
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

// poll asks, ever less often, until the answer is yes or time is up.
func poll(done func() bool) bool {
	deadline := time.After(readyTimeout)
	for wait := time.Millisecond; !done(); wait = min(2*wait, 50*time.Millisecond) {
		select {
		case <-deadline:
			return false
		case <-time.After(wait):
		}
	}
	return true
}
