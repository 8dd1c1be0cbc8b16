package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/timerlag"
	"github.com/sashlimit/sash/core/redisstore"
)

// quiet keeps go-redis from logging each failed dial.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// The go-redis of this module dials five times, 100 ms apart, so decisions end with their timeout. The error tells all
// the same that the server has refused connections.
func TestRefusedConnection(t *testing.T) {
	redis.SetLogger(quiet{})
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	defer slog.SetDefault(before)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	// With a large pool go-redis keeps dialling: after so many failures as the pool is large it stops for a second.
	rdb := redis.NewClient(&redis.Options{Addr: l.Addr().String(), PoolSize: 100})
	defer rdb.Close()
	const timeout = 200 * time.Millisecond
	var reported error
	limiter, err := core.New(core.PerMinute(10), core.ByText(), core.WithStore(redisstore.New(rdb)),
		core.WithTimeout(timeout), core.WithObserver(func(_ context.Context, e core.Event) { reported = e.Err }))
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	clock := timerlag.Watch()
	defer clock.Stop()
	fastest := time.Hour
	for range 5 {
		began := time.Now()
		d, err := limiter.Allow(t.Context(), "k")
		fastest = min(fastest, time.Since(began))
		var refused *core.StoreError
		if err != nil || !d.Degraded || !errors.As(reported, &refused) || refused.Class != redisstore.ClassRefused {
			t.Errorf("%+v, %v; reported: %v", d, err, reported)
		}
	}
	if fastest > timeout+25*time.Millisecond+clock.Slack() {
		t.Errorf("the fastest of 5 took %v, while timers were late by %v", fastest, clock.Worst())
	}
}
