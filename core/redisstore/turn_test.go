package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/internal/redisserver"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
)

// apart is a store on two servers, and a key on each of them.
type apart struct {
	*testing.T
	store.Full

	ring    *redis.Ring
	servers [2]*redisserver.Server
	keys    [2]store.Key
	limit   *store.Limit
	id      uint64
	begins  begins
}

func newApart(t *testing.T) *apart {
	t.Helper()
	x := &apart{T: t, limit: sliding(1, time.Hour), begins: make(begins, 10_000)}
	x.servers = [2]*redisserver.Server{redisserver.Start(t), redisserver.Start(t)}
	x.ring = redis.NewRing(&redis.RingOptions{
		Addrs:       map[string]string{"a": x.servers[0].Addr(), "b": x.servers[1].Addr()},
		ReadTimeout: time.Minute, HeartbeatFrequency: time.Hour,
	})
	t.Cleanup(func() { x.ring.Close() })
	x.ring.AddHook(x.begins) // before it is in use
	x.Full, _ = redisstore.New(x.ring).(store.Full)
	for n := 0; x.keys[0].Text == "" || x.keys[1].Text == ""; n++ {
		key := store.NewKey("test", fmt.Sprint(n))
		if _, err := x.take(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		for i := range x.servers {
			if x.size(i, key) == 1 {
				x.keys[i] = key
			}
		}
		must(t, x.Reset(t.Context(), key, []*store.Limit{x.limit}, 0))
	}
	return x
}

func (x *apart) take(ctx context.Context, keys ...store.Key) ([]store.Answer, error) {
	x.id++
	takes, answers := make([]store.Take, len(keys)), make([]store.Answer, len(keys))
	for i := range keys {
		takes[i] = store.Take{Key: keys[i], Limit: x.limit, Cost: 1, ID: x.id}
	}
	return answers, x.Take(ctx, takes, answers)
}

// begins is a hook that receives the arguments of each command.
type begins chan string

func (begins) DialHook(next redis.DialHook) redis.DialHook { return next }

func (begins) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (b begins) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		b <- fmt.Sprint(cmd.Args()...)
		return next(ctx, cmd)
	}
}

// cancels returns a context that is canceled when the next command of a key begins.
func (b begins) cancels(ctx context.Context, key store.Key) context.Context {
	b.forget()
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		b.wait(key)
	}()
	return ctx
}

// wait returns when the next command of a key begins.
func (b begins) wait(key store.Key) {
	for !strings.Contains(<-b, key.String()) {
		continue
	}
}

// forget drops what has begun so far.
func (b begins) forget() {
	for len(b) > 0 {
		<-b
	}
}

// size is how many entries a server has of a key.
func (x *apart) size(server int, key store.Key) int64 {
	x.Helper()
	n, err := x.servers[server].Do("ZCARD", "sash:{"+key.String()+"}:"+x.limit.Log)
	if err != nil {
		x.Fatal(err)
	}
	return n.(int64)
}

// becomes waits until a server has so many entries of its key.
func (x *apart) becomes(server int, want int64) {
	x.Helper()
	for begun := time.Now(); x.size(server, x.keys[server]) != want; <-time.After(time.Millisecond) {
		if time.Since(begun) > 20*time.Second {
			x.Fatalf("server %d has not %d entries", server, want)
		}
	}
}

// If the second server does not answer in time, what the first one has recorded stays, and the caller hears later that
// the call has ended.
func TestInTurnWithoutAnAnswer(t *testing.T) {
	x := newApart(t)
	x.servers[1].Pause()
	_, err := x.take(x.begins.cancels(t.Context(), x.keys[1]), x.keys[0], x.keys[1])
	x.servers[1].Resume()
	var left *store.LeftError
	if !errors.As(err, &left) {
		t.Fatalf("%v, want a LeftError", err)
	}
	ended := make(chan struct{})
	left.Then(func() { close(ended) })
	<-ended
	x.becomes(0, 1)
	x.becomes(1, 1)
}

// What the first server has recorded is given back if the second one denies, also when the time of the decision ends
// meanwhile: the caller has its answer then.
func TestInTurnGivesBackLater(t *testing.T) {
	x := newApart(t)
	if _, err := x.take(t.Context(), x.keys[1]); err != nil { // its quota is 1
		t.Fatal(err)
	}
	x.servers[1].Pause()
	x.begins.forget()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type result struct {
		answers []store.Answer
		err     error
	}
	done := make(chan result, 1)
	go func() {
		answers, err := x.take(ctx, x.keys[0], x.keys[1])
		done <- result{answers, err}
	}()
	x.begins.wait(x.keys[1]) // so the first server has answered
	x.servers[0].Pause()
	x.servers[1].Resume()
	x.begins.wait(x.keys[0]) // the settlement
	cancel()
	if r := <-done; r.err != nil || !r.answers[1].Known || r.answers[1].Allowed {
		t.Errorf("%+v, want a denial", r)
	}
	x.servers[0].Resume()
	x.becomes(0, 0)
}
