package redisclient

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/internal/deadline"
)

// A call that is canceled ends at once, also in a client that does not heed its context, and is not executed later. It
// says nothing about the server.
func TestCanceledCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConn(nil)
		given := make(chan context.Context, 1)
		c.Process = func(ctx context.Context, _ redis.Cmder) error {
			given <- ctx
			<-ctx.Done()
			return ctx.Err()
		}
		ctx, cancel := context.WithCancel(deadline.New(time.Second, nil).Within(t.Context(), time.Now()))
		begun := time.Now()
		time.AfterFunc(time.Millisecond, cancel)
		q := newCall(newScript("return 0"), 1, 0)
		err := c.do(ctx, &q)
		if err = cmp.Or(err, q.err); !errors.Is(err, context.Canceled) || time.Since(begun) != time.Millisecond {
			t.Errorf("it ended after %v: %v", time.Since(begun), err)
		}
		synctest.Wait()
		if (<-given).Err() == nil {
			t.Error("the client may still execute it")
		}
		if c.silence.hangs() {
			t.Error("the server is taken for one that hangs")
		}
	})
}

// A server that answers several commands at once does not hang.
func TestRepliesToSeveralCallsAreHeard(t *testing.T) {
	addr := redistest.StartFake(t, func(command []string) string {
		if command[0] == "EVALSHA" {
			return "*1\r\n:1\r\n"
		}
		return ""
	})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": addr}, HeartbeatFrequency: time.Hour})
	defer ring.Close()
	c := newConn(ring)
	c.silence.unanswered()
	c.silence.unanswered()
	one, other := newCall(newScript("return {1}"), 1, 0), newCall(newScript("return {1}"), 1, 0)
	one.args[keysAt], other.args[keysAt] = "a", "b"
	if err := cmp.Or(c.do(t.Context(), &one, &other), one.err, other.err); err != nil {
		t.Fatal(err)
	}
	if c.silence.hangs() || !c.silence.answered.Load() {
		t.Error("the replies are not noted")
	}
}

// What is known of a client goes with it, also where its store lives on.
func TestClientsAreForgotten(t *testing.T) {
	count := func() (n int) {
		for _, m := range []*sync.Map{&dialWatches, &watchedNodes} {
			m.Range(func(any, any) bool { n++; return true })
		}
		return n
	}
	forgotten := func(whose string) {
		t.Helper()
		for range 1000 {
			if count() == 0 {
				return
			}
			runtime.GC()
			runtime.Gosched()
		}
		t.Fatalf("%d clients of %s are known after they have gone", count(), whose)
	}
	forgotten("earlier tests")
	func() {
		client := redis.NewClient(&redis.Options{})
		defer client.Close()
		if w := watchDials(client, false); watchDials(client, false) != w || w.client.Value() != startOf(client) {
			t.Error("a client has two watches, or its watch another client")
		}
		ring := redis.NewRing(&redis.RingOptions{})
		defer ring.Close()
		storeOnce(&watchedNodes, ring, nil)
		if _, first := storeOnce(&watchedNodes, ring, nil); first || count() != 2 {
			t.Errorf("stored twice %v, %d clients are known", first, count())
		}
	}()
	forgotten("this test")
}
