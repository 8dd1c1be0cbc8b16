package examples_test

import (
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core/coretest/redistest"
)

// withRedisURL are the examples that share a Redis, with the arguments that they need.
var withRedisURL = map[string][]string{
	"login": nil, "metrics": nil,
	"gateway": {"-rules", sample, "-to", "http://localhost:9000", "-listen", "127.0.0.1:0"},
	"service": {"-rules", sample, "-listen", "127.0.0.1:0"},
}

// A wrong REDIS_URL is named, with what to write.
func TestWrongRedisURL(t *testing.T) {
	for name, args := range withRedisURL {
		t.Setenv("REDIS_URL", "localhost:6379")
		status, text := exited(t, compile(t, name), args...)
		if status != 1 || !strings.Contains(text, "REDIS_URL: ") || !strings.Contains(text, "redis://localhost:6379") {
			t.Errorf("%s: exit status %d, %s", name, status, text)
		}
	}
}

// A Redis that cannot be used is told at once, and does not keep a program from starting.
func TestUselessRedis(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	evicting := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	for name, args := range withRedisURL {
		for url, want := range map[string]string{
			"redis://127.0.0.1:1":               "connection refused",
			"redis://" + silent.Addr().String(): "context deadline exceeded",
			evicting.URL():                      "maxmemory-policy is allkeys-lru",
		} {
			t.Run(name+" "+want, func(t *testing.T) {
				t.Parallel() // most of the time passes in waiting for the silent one
				c := exec.Command(compile(t, name), args...)
				errs := new(printed)
				c.Stderr = errs
				start(t, c, "REDIS_URL="+url)
				until(t, "it says "+want, func() bool { return strings.Contains(errs.String(), want) })
				if !strings.Contains(errs.String(), "REDIS_URL") {
					t.Errorf("it does not name REDIS_URL: %s", errs)
				}
			})
		}
	}
}
