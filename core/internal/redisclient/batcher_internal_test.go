package redisclient

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/internal/deadline"
	"github.com/sashlimit/sash/core/store"
)

// batcherTo returns a batcher whose commands go to process instead of a server. Commands that process does not answer
// fail.
func batcherTo(process func(context.Context, redis.Cmder)) *batcher {
	c := &Conn{Single: true, prompt: true, silence: new(silence)}
	c.Process = func(ctx context.Context, cmd redis.Cmder) error {
		process(ctx, cmd)
		return errNotAnswered
	}
	plan := store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: 5, Window: time.Hour}}})
	f := NewFormat(newScript("return 0"), []store.Take{{Plan: plan}})
	f.AppendPlan(&store.Take{Plan: plan}, true)
	return newBatcher(c, f)
}

var errNotAnswered = errors.New("not answered")

func newTake(ctx context.Context, key string) *take {
	return &take{ctx: ctx, key: key, keys: []string{key}, argument: IDText(1), done: make(chan struct{}, 1)}
}

// The context of a batch ends when the last of its takes' contexts does, and not when a caller cancels.
func TestBatchContext(t *testing.T) {
	type contextKey struct{}
	now := time.Now()
	until := func(d time.Duration) context.Context {
		ctx, cancel := context.WithDeadline(context.WithValue(t.Context(), contextKey{}, d), now.Add(d))
		t.Cleanup(cancel)
		return ctx
	}
	canceled, cancel := context.WithCancel(until(time.Hour))
	cancel()
	for name, c := range map[string]struct {
		takes []context.Context
		want  time.Duration // or 0 for no deadline
	}{
		"one": {[]context.Context{until(time.Minute)}, time.Minute},
		"the last is longest": {
			[]context.Context{until(time.Minute), until(2 * time.Minute), until(time.Hour)}, time.Hour,
		},
		"the first":     {[]context.Context{until(time.Hour), until(time.Minute), until(time.Second)}, time.Hour},
		"in the middle": {[]context.Context{until(time.Minute), until(time.Hour), until(time.Second)}, time.Hour},
		"no deadline":   {[]context.Context{until(time.Minute), t.Context(), until(time.Hour)}, 0},
		"canceled":      {[]context.Context{canceled, until(time.Minute)}, time.Hour},
	} {
		asked := 0
		b := batcherTo(func(ctx context.Context, _ redis.Cmder) {
			asked++
			end, ok := ctx.Deadline()
			if ok != (c.want > 0) || ok && !end.Equal(now.Add(c.want)) || ctx.Err() != nil {
				t.Errorf("%s: the batch's context ends in %v (%v), %v; want %v",
					name, end.Sub(now), ok, ctx.Err(), c.want)
			}
			if ctx.Value(contextKey{}) != c.takes[0].Value(contextKey{}) {
				t.Errorf("%s: the batch's context has the value %v", name, ctx.Value(contextKey{}))
			}
		})
		var batch []*take
		for i, ctx := range c.takes {
			batch = append(batch, newTake(ctx, fmt.Sprint(i)))
		}
		b.inFlight = 1
		b.run(batch)
		for _, k := range batch {
			if len(k.done) != 1 || !errors.Is(k.err, errNotAnswered) {
				t.Errorf("%s: a take has %d answers, %v", name, len(k.done), k.err)
			}
		}
		if asked != 1 || b.inFlight != 0 {
			t.Errorf("%s: asked %d times, %d batches in flight", name, asked, b.inFlight)
		}
	}
}

// So it does in a client that does not heed deadlines, also if the first take's context is that of a limiter.
func TestBatchContextOfLimiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := batcherTo(func(context.Context, redis.Cmder) { time.Sleep(time.Second) })
		b.conn.prompt, b.conn.abandoned = false, make(chan struct{}, 1)
		b.inFlight = 1
		short := deadline.New(100*time.Millisecond, nil).Within(t.Context(), time.Now())
		long, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		last := newTake(long, "b")
		b.run([]*take{newTake(short, "a"), last})
		if !errors.Is(last.err, errNotAnswered) {
			t.Errorf("the last take: %v", last.err)
		}
	})
}

// A node that hangs takes no room from calls to others, in a client that does not heed deadlines.
func TestHangingNodeLeavesRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resumed := make(chan struct{})
		b := batcherTo(func(_ context.Context, cmd redis.Cmder) {
			if key, ok := cmd.Args()[keysAt].(*string); cmd.Args()[keysAt] == "hangs" || ok && *key == "hangs" {
				<-resumed
			}
		})
		b.conn.prompt, b.conn.abandoned = false, make(chan struct{}, maxAbandoned)
		b.conn.node = func(_ context.Context, key string) any { return "the node of " + key }
		logs := &Logs{Conn: b.conn, kind: new(Kind)}
		for name, call := range map[string]func(ctx context.Context, key string) error{
			"a take": func(ctx context.Context, key string) error {
				format := func([]store.Take) Format { return b.Format }
				t := newTake(ctx, key)
				new(batchers).find(b.conn, format, make([]store.Take, 1), b.conn.node(ctx, key)).sendOne(t)
				return t.err
			},
			"another call": func(ctx context.Context, key string) error {
				_, err := logs.RunOn(ctx, newScript("return 0"), key)
				return err
			},
		} {
			ask := func(key string) error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				return call(ctx, key)
			}
			for range maxAbandoned {
				go ask("hangs")
			}
			synctest.Wait()
			if err := ask("k"); !errors.Is(err, errNotAnswered) {
				t.Errorf("%s: %v", name, err)
			}
		}
		close(resumed)
	})
}

// held returns a batcher whose commands wait until the test receives them.
func held(t *testing.T) (*batcher, chan []string) {
	sent := make(chan []string)
	b := batcherTo(func(_ context.Context, cmd redis.Cmder) {
		var keys []string
		for _, a := range cmd.Args()[keysAt:][:cmd.Args()[keysAt-1].(int)] {
			keys = append(keys, *a.(*string))
		}
		sent <- keys
	})
	for i := range maxInFlight { // so that others wait for a batch
		go b.do(newTake(t.Context(), fmt.Sprint("first ", i)))
	}
	b.until(func() bool { return b.inFlight == maxInFlight })
	return b, sent
}

// until returns when condition holds, which it reads under the batcher's lock.
func (b *batcher) until(condition func() bool) {
	for {
		b.mu.Lock()
		ok := condition()
		b.mu.Unlock()
		if ok {
			return
		}
		runtime.Gosched()
	}
}

// A take whose caller has given up while it waited is not sent.
func TestGivenUpTakesAreNotSent(t *testing.T) {
	b, sent := held(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	const waiting = 20
	for i := range waiting {
		if i%2 == 0 {
			if err := b.do(newTake(ctx, fmt.Sprint("gone ", i))); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			continue
		}
		go b.do(newTake(t.Context(), fmt.Sprint("waits ", i)))
		b.until(func() bool { return b.waiting.arrivals == uint64(i+1) })
	}
	got := map[string]int{}
	for range maxInFlight + waiting/2 {
		for len(got) < maxInFlight+waiting/2 {
			for _, key := range <-sent {
				got[key]++
			}
		}
	}
	b.until(func() bool { return b.inFlight == 0 && b.waiting.waiting == 0 })
	for i := range waiting {
		if gone, waits := got[fmt.Sprint("gone ", i)], got[fmt.Sprint("waits ", i)]; gone != 0 || waits != i%2 {
			t.Errorf("take %d: sent %d times after its caller gave up, %d times for a caller that waited",
				i, gone, waits)
		}
	}
}

// No take waits for longer than maxWait while the answers to others take long, whether or not a batch has left since.
// Here no command is answered, and a batch has room for one take of a key.
func TestTakesAreSentWithinMaxWait(t *testing.T) {
	b, sent := held(t)
	b.mu.Lock()
	b.waiting.rooms = []int{1}
	b.mu.Unlock()
	const waiting = flushInFlight - maxInFlight
	for range waiting + 5 {
		go b.do(newTake(t.Context(), "k"))
	}
	b.until(func() bool { return b.inFlight == flushInFlight })
	b.until(func() bool { return b.waiting.arrivals == waiting+5 })
	b.mu.Lock()
	if b.waiting.waiting != 5 {
		t.Errorf("%d takes wait, want 5 beside %d batches in flight", b.waiting.waiting, flushInFlight)
	}
	b.mu.Unlock()
	for range maxInFlight + waiting + 5 {
		<-sent
	}
	b.until(func() bool { return b.inFlight == 0 && b.waiting.waiting == 0 })
}

// ending is a context that ends when its Done is called after some other calls, but not before all else has happened.
type ending struct {
	context.Context

	calls int
}

func (e *ending) Done() <-chan struct{} {
	if e.calls--; e.calls >= 0 {
		return nil
	}
	time.Sleep(time.Minute)
	return ended
}

// A reply that is there wins over a deadline that has passed, in a batch and if a client does not heed deadlines.
func TestReplyWinsOverDeadline(t *testing.T) {
	for range 20 { // the choice was at random
		synctest.Test(t, func(t *testing.T) {
			b := batcherTo(func(context.Context, redis.Cmder) {})
			b.inFlight = maxInFlight
			if err := b.do(newTake(&ending{context.Background(), 0}, "k")); !errors.Is(err, errNotAnswered) {
				t.Errorf("a take of a batch: %v", err)
			}
			b.conn.prompt, b.conn.abandoned = false, make(chan struct{}, 1)
			q := newCall(b.Script, 1, 0)
			ctx := &ending{context.Background(), 1} // there is one call before the server is asked
			if err := b.conn.do(ctx, &q); err != nil || !errors.Is(q.err, errNotAnswered) {
				t.Errorf("a call: %v, %v", err, q.err)
			}
		})
	}
}
