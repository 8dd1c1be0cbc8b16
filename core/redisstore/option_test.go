package redisstore_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
)

// All mistakes in options are reported, each time that a limiter asks.
func TestOptionMistakes(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { client.Close() })
	s := redisstore.New(client, redisstore.WithPrefix("a"), nil, redisstore.WithPrefix("b"))
	for range 2 {
		err := s.Validate(store.NewPlan(store.Plan{}))
		if err == nil {
			t.Fatal("no error")
		}
		for _, want := range []string{"redisstore.New(nil option)", "redisstore.WithPrefix(twice)"} {
			if n := strings.Count(err.Error(), want); n != 1 {
				t.Errorf("%d of %q in: %v", n, want, err)
			}
		}
	}
}

// wrapped is a client of a type that the store does not know. It counts what it sends.
type wrapped struct {
	redisstore.Client

	sent *int
}

func (w wrapped) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	*w.sent++
	return w.Client.EvalSha(ctx, sha1, keys, args...)
}

// The keys of a client whose type is not known are taken to be on several servers, which the log says, once for each
// type. With WithOneServer a request over several logs is one command.
func TestOneServer(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	rdb := start(t)
	sends := func(n int, opts ...redisstore.Option) {
		t.Helper()
		client := wrapped{rdb, new(int)}
		l, err := core.New(core.Limits{core.PerHour(9), core.PerDay(9).By(core.Global())}, core.Global(),
			core.WithStore(redisstore.New(client, opts...)))
		if err != nil {
			t.Fatal(err)
		}
		for range 3 { // the first one makes the script known
			*client.sent = 0
			if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed || d.Degraded {
				t.Errorf("%+v, %v", d, err)
			}
		}
		if *client.sent != n {
			t.Errorf("%d commands for a request over two logs, want %d", *client.sent, n)
		}
	}
	sends(1, redisstore.WithOneServer())
	if log.Len() > 0 {
		t.Errorf("logged %s", &log)
	}
	sends(2)
	sends(2)
	if n := strings.Count(log.String(), "type=redisstore_test.wrapped "); n != 1 ||
		!strings.Contains(log.String(), "redisstore.WithOneServer()") {
		t.Errorf("%d warnings: %s", n, &log)
	}
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	err := redisstore.New(ring, redisstore.WithOneServer()).Validate(store.NewPlan(store.Plan{}))
	want := "redisstore.WithOneServer(*redis.Ring): this client is for several"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
}
