package redisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
)

// laneTo is a lane whose commands go to process instead of a server. It fails every command that process does not
// answer.
func laneTo(process func(context.Context, redis.Cmder)) *lane {
	c := &conn{single: true, prompt: true, process: func(ctx context.Context, cmd redis.Cmder) error {
		process(ctx, cmd)
		return errNotAnswered
	}}
	return newLane(c, &core.Take{Limits: core.Limits{core.PerHour(5)}, Keep: time.Hour})
}

var errNotAnswered = errors.New("not answered")

func newTake(ctx context.Context, key string) *take {
	return &take{ctx: ctx, key: key, id: idText(1), cost: 1, done: make(chan struct{}, 1)}
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
		"one":                 {[]context.Context{until(time.Minute)}, time.Minute},
		"the last is longest": {[]context.Context{until(time.Minute), until(2 * time.Minute), until(time.Hour)}, time.Hour},
		"the first":           {[]context.Context{until(time.Hour), until(time.Minute), until(time.Second)}, time.Hour},
		"in the middle":       {[]context.Context{until(time.Minute), until(time.Hour), until(time.Second)}, time.Hour},
		"no deadline":         {[]context.Context{until(time.Minute), t.Context(), until(time.Hour)}, 0},
		"canceled":            {[]context.Context{canceled, until(time.Minute)}, time.Hour},
	} {
		asked := 0
		l := laneTo(func(ctx context.Context, _ redis.Cmder) {
			asked++
			end, ok := ctx.Deadline()
			if ok != (c.want > 0) || ok && !end.Equal(now.Add(c.want)) || ctx.Err() != nil {
				t.Errorf("%s: the batch's context ends in %v (%v), %v; want %v", name, end.Sub(now), ok, ctx.Err(), c.want)
			}
			if ctx.Value(contextKey{}) != c.takes[0].Value(contextKey{}) {
				t.Errorf("%s: the batch's context has the value %v", name, ctx.Value(contextKey{}))
			}
		})
		var batch []*take
		for i, ctx := range c.takes {
			batch = append(batch, newTake(ctx, fmt.Sprint(i)))
		}
		l.flying = 1
		l.fly(batch)
		for _, k := range batch {
			if len(k.done) != 1 || !errors.Is(k.err, errNotAnswered) {
				t.Errorf("%s: a take has %d answers, %v", name, len(k.done), k.err)
			}
		}
		if asked != 1 || l.flying != 0 {
			t.Errorf("%s: asked %d times, %d batches in flight", name, asked, l.flying)
		}
	}
}

// held is a lane whose commands wait until the test receives them.
func held(t *testing.T) (*lane, chan []string) {
	sent := make(chan []string)
	l := laneTo(func(_ context.Context, cmd redis.Cmder) {
		var keys []string
		for _, a := range cmd.Args()[keysAt:][:cmd.Args()[keysAt-1].(int)] {
			keys = append(keys, *a.(*string))
		}
		sent <- keys
	})
	for i := range underway { // so that others wait for a batch
		go l.ask(newTake(t.Context(), fmt.Sprint("first ", i))) //nolint:errcheck // it fails
	}
	l.until(func() bool { return l.flying == underway })
	return l, sent
}

// until returns when condition holds, which it reads under the lane's lock.
func (l *lane) until(condition func() bool) {
	for {
		l.mu.Lock()
		ok := condition()
		l.mu.Unlock()
		if ok {
			return
		}
		runtime.Gosched()
	}
}

// A take whose caller has given up while it waited is not sent.
func TestGivenUpTakesAreNotSent(t *testing.T) {
	l, sent := held(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	const waiting = 20
	for i := range waiting {
		if i%2 == 0 {
			if err := l.ask(newTake(ctx, fmt.Sprint("gone ", i))); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			continue
		}
		go l.ask(newTake(t.Context(), fmt.Sprint("waits ", i))) //nolint:errcheck // it fails
		l.until(func() bool { return l.waiting.arrivals == uint64(i+1) })
	}
	got := map[string]int{}
	for range underway + waiting/2 {
		for len(got) < underway+waiting/2 {
			for _, key := range <-sent {
				got[key]++
			}
		}
	}
	l.until(func() bool { return l.flying == 0 && l.waiting.waiting == 0 })
	for i := range waiting {
		if gone, waits := got[fmt.Sprint("gone ", i)], got[fmt.Sprint("waits ", i)]; gone != 0 || waits != i%2 {
			t.Errorf("take %d: sent %d times after its caller gave up, %d times for a caller that waited", i, gone, waits)
		}
	}
}

// No take waits for longer than patience while the answers to others take long, whether or not a batch has left since.
// Here no command is answered, and a batch has room for one take of a key.
func TestTakesLeaveWithinPatience(t *testing.T) {
	l, sent := held(t)
	l.mu.Lock()
	l.waiting.room = 1
	l.mu.Unlock()
	const waiting = mostUnderway - underway
	for range waiting + 5 {
		go l.ask(newTake(t.Context(), "k")) //nolint:errcheck // it fails
	}
	l.until(func() bool { return l.flying == mostUnderway })
	l.until(func() bool { return l.waiting.arrivals == waiting+5 })
	l.mu.Lock()
	if l.waiting.waiting != 5 {
		t.Errorf("%d takes wait, want 5 beside %d batches in flight", l.waiting.waiting, mostUnderway)
	}
	l.mu.Unlock()
	for range underway + waiting + 5 {
		<-sent
	}
	l.until(func() bool { return l.flying == 0 && l.waiting.waiting == 0 })
}
