package aibrix_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/examples/ports/aibrix"
	"github.com/sashlimit/sash/examples/ports/internal/porttest"
)

// limiter admits a request, and returns the function that counts its tokens afterwards, or nil.
type limiter func(user aibrix.User, tokens int64) (count func(tokens int64))

// original decides as AIBrix does: it reads the counter of requests, compares it with the limit, increments it, and
// then reads that of tokens. Tokens are counted when they are known. Each minute has counters of its own.
func original() limiter {
	var redis porttest.Redis
	key := func(user aibrix.User, unit string) string {
		return fmt.Sprint(user.Name, unit, time.Now().Unix()/60%64)
	}
	return func(user aibrix.User, _ int64) (count func(int64)) {
		if redis.Get(key(user, "requests")) >= user.Rpm {
			return nil
		}
		redis.IncrBy(key(user, "requests"), 1, time.Minute)
		if redis.Get(key(user, "tokens")) >= user.Tpm {
			return nil
		}
		return func(tokens int64) { redis.IncrBy(key(user, "tokens"), tokens, time.Minute) }
	}
}

func port(t *testing.T) limiter {
	t.Helper()
	server, err := aibrix.NewServer(core.NewMemoryStore())
	if err != nil {
		t.Fatal(err)
	}
	return func(user aibrix.User, tokens int64) func(int64) {
		d, err := server.CheckLimits(context.Background(), user, tokens)
		if err != nil {
			return nil
		}
		return func(tokens int64) {
			if err := aibrix.CountTokens(context.Background(), d, tokens); err != nil {
				t.Error(err)
			}
		}
	}
}

// Requests at the same time all read the counter before any of them has incremented it.
func TestAtOnce(t *testing.T) {
	porttest.Compare(t, original, port, func(l limiter) bool {
		var admitted porttest.Log
		porttest.AtOnce(50, func() {
			if l(aibrix.User{Name: "ann", Rpm: 10, Tpm: 1000}, 1) != nil {
				admitted.Admit(1)
			}
		})
		return admitted.Len() < 10 || admitted.Breaks(core.PerMinute(10))
	})
}

// Answers that are being generated have no tokens yet.
func TestTokensInFlight(t *testing.T) {
	porttest.Compare(t, original, port, func(l limiter) bool {
		var tokens porttest.Log
		porttest.AtOnce(5, func() {
			if count := l(aibrix.User{Name: "ann", Rpm: 10, Tpm: 100}, 100); count != nil {
				tokens.Admit(100)
				time.Sleep(5 * time.Second)
				count(100)
			}
		})
		return tokens.Len() < 1 || tokens.Breaks(core.PerMinute(100))
	})
}

// Twice the quota fits around the beginning of a minute.
func TestEdge(t *testing.T) {
	porttest.Compare(t, original, port, func(l limiter) bool {
		var admitted porttest.Log
		for _, pause := range []time.Duration{59 * time.Second, time.Second} {
			time.Sleep(pause)
			for range 15 {
				if l(aibrix.User{Name: "ann", Rpm: 10, Tpm: 1000}, 1) != nil {
					admitted.Admit(1)
				}
			}
		}
		return admitted.Len() < 10 || admitted.Breaks(core.PerMinute(10))
	})
}

// A request that tokens deny has been counted, so the user has no requests left after an upgrade.
func TestDeniedByTokens(t *testing.T) {
	porttest.Compare(t, original, port, func(l limiter) bool {
		user := aibrix.User{Name: "ann", Rpm: 10, Tpm: 100}
		l(user, 100)(100)
		for range 9 {
			if l(user, 1) != nil {
				t.Error("admitted without tokens")
			}
		}
		user.Tpm = 1000
		return l(user, 1) == nil
	})
}
