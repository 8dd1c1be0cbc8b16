package redisclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/internal/within"
	"github.com/sashlimit/sash/core/store"
)

// inBubble runs a test in a bubble, until the senders have ended.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t)
		time.Sleep(keepSender)
	})
}

// fake is a client of a server that replies with a number for each key. It can be told not to reply.
type fake struct {
	*Conn
	process func(context.Context, redis.Cmder) error
	hangs   atomic.Bool

	mu       sync.Mutex
	sent     [][]any // arguments of commands
	underWay int
	most     int // of underWay
	resume   chan struct{}
}

func newFake() *fake {
	f := &fake{resume: make(chan struct{})}
	f.Conn = newConn(&Package{Name: "test"}, nil, "sash")
	f.one, f.known = true, f
	f.process = f.reply
	return f
}

func (f *fake) Process(ctx context.Context, cmd redis.Cmder) error { return f.process(ctx, cmd) }

func (f *fake) Pipeline() redis.Pipeliner { return nil }

func (f *fake) reply(_ context.Context, cmd redis.Cmder) error {
	f.mu.Lock()
	f.sent = append(f.sent, cmd.Args())
	f.underWay++
	f.most = max(f.most, f.underWay)
	f.mu.Unlock()
	if f.hangs.Load() {
		<-f.resume
	}
	f.mu.Lock()
	f.underWay--
	f.mu.Unlock()
	reply := make([]int64, cmd.Args()[2].(int))
	cmd.(*redis.IntSliceCmd).SetVal(reply)
	return nil
}

// keys are those of the commands so far.
func (f *fake) keys() (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, args := range f.sent {
		var keys []string
		for _, key := range args[3 : 3+args[2].(int)] {
			keys = append(keys, key.(string))
		}
		all = append(all, strings.Join(keys, " "))
	}
	return all
}

const timeout = 100 * time.Millisecond

func (f *fake) ask(p *Plan, key string) error { return f.askWithin(timeout, p, key) }

func (f *fake) askWithin(limit time.Duration, p *Plan, key string) error {
	ctx := within.New(context.Background(), limit) // as a guard's is
	defer ctx.Cancel()
	return f.Do(ctx, p, fresh(key))
}

// fresh is a question that is not from the pool, since bubbles of synctest share no channels.
func fresh(key string) *Question {
	return &Question{Keys: []string{key}, key: key, Argument: "12345678", wakeUp: make(chan struct{}, 1)}
}

func newPlan() *Plan {
	return &Plan{Script: NewScript("return {}"), Group: 4, Cut: func([]int64, int) int { return 1 }}
}

// filled returns the keys of the batches in which these questions leave, and how many questions each stands for. The
// callers of those in capital letters have left.
func filled(p *Plan, asked string) (batches []string) {
	b := &queue{Plan: p, conn: newFake().Conn, server: newServer(0, 0, mostKeys), byKey: make(map[string]*Question)}
	for text := range strings.FieldsSeq(asked) {
		q := fresh(strings.ToLower(text[:1]))
		if q.ctx = context.Background(); q.key != text[:1] {
			q.owner.Store(left)
		}
		q.Argument += text[1:]
		b.add(q)
	}
	for len(b.turns) > 0 {
		c := b.next()
		var texts []string
		for _, q := range c.firsts {
			texts = append(texts, fmt.Sprintf("%s%d", q.key, q.StandsFor))
			n := 0
			for one := q; one != nil; one = one.next {
				if one.Place != n || one.rest() != q.rest() {
					texts = append(texts, fmt.Sprintf("place %d of %s", one.Place, one.Argument))
				}
				n++
			}
			if n != q.StandsFor {
				texts = append(texts, fmt.Sprintf("%d questions", n))
			}
		}
		batches = append(batches, strings.Join(texts, " "))
	}
	if len(b.byKey) > 0 {
		batches = append(batches, fmt.Sprintf("%d keys left", len(b.byKey)))
	}
	return batches
}

func TestBatches(t *testing.T) {
	several := strings.Repeat("a ", 10)
	for _, c := range []struct {
		asked  string
		single bool
		want   string
	}{
		{"a b c", false, "a1 b1 c1"},
		{"a b a a", false, "a3 b1"},
		{several + "b", false, "a4 b1 a4 a2"}, // no more than a Group at once, and b comes before the rest
		{"a a1 a1 a b", false, "a1 b1 a2 a1"}, //nolint:dupword // other costs are other questions, in their order
		{"a a b", true, "a1 b1 a1"},           //nolint:dupword // keys
		{"A b B a", false, "a1 b1"},           // without those whose callers have left
		{"A a B a", false, "a2"},
		{"A B", false, ""},
	} {
		p := newPlan()
		if c.single {
			p.Group = 0
		}
		if got := strings.Join(filled(p, c.asked), " | "); got != c.want {
			t.Errorf("%q leave in %q, want %q", c.asked, got, c.want)
		}
	}
}

// A batch has at most 128 keys and 1,024 questions. A flood of one key leaves room for others.
func TestSizesOfBatches(t *testing.T) {
	p := newPlan()
	p.Group = 1000
	f := newFake()
	b := &queue{Plan: p, conn: f.Conn, server: newServer(0, 0, mostKeys), byKey: make(map[string]*Question)}
	add := func(key string, n int) {
		for range n {
			q := fresh(key)
			q.ctx = t.Context()
			b.add(q)
		}
	}
	add("flood", 5000)
	for i := range 200 {
		add(fmt.Sprint(i), 1)
	}
	var sizes []string
	for len(b.turns) > 0 {
		c := b.next()
		sizes = append(sizes, fmt.Sprintf("%d/%d", c.keys, c.waiting))
	}
	want := "25/1024 128/128 49/1024 2/1024 2/1024 1/976"
	if got := strings.Join(sizes, " "); got != want {
		t.Errorf("keys and questions of batches: %s, want %s", got, want)
	}
}

// Two batches are in flight, and more if none was sent for 5 ms.
func TestQuestionsWaitForABatch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f, p := newFake(), newPlan()
		f.hangs.Store(true)
		var all sync.WaitGroup
		ask := func(key string) {
			all.Go(func() {
				if err := f.ask(p, key); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		for _, key := range []string{"a", "b", "c", "d"} {
			ask(key)
		}
		if got, want := f.keys(), []string{"a", "b"}; !slices.Equal(got, want) {
			t.Errorf("sent at once: %q, want %q", got, want)
		}
		time.Sleep(longWait)
		synctest.Wait()
		if got, want := f.keys(), []string{"a", "b", "c d"}; !slices.Equal(got, want) {
			t.Errorf("after 5 ms: %q, want %q", got, want)
		}
		for i := range 20 {
			ask(fmt.Sprint(i))
			time.Sleep(longWait / 2)
		}
		if len(f.sent) > mostBatches {
			t.Errorf("%d batches in flight", len(f.sent))
		}
		close(f.resume)
		all.Wait()
	})
}

// In a process without CPU time the senders of batches that were answered may have their turn much later. They delay no
// question by more than 5 ms.
func TestAnsweredBatches(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f, p := newFake(), newPlan()
		b := p.queueOf(f.Conn, f.all)
		b.ending, b.sentAt = mostBatches, time.Now()
		begun := time.Now()
		if err := f.ask(p, "k"); err != nil || time.Since(begun) != longWait {
			t.Errorf("%v after %v, want an answer after %v", err, time.Since(begun), longWait)
		}
	})
}

// What is merged into several logs goes together, and counts by its entries, unless it rewrites the logs.
func TestMergesGoTogether(t *testing.T) {
	testMerges(t, false, []int{1, 1, 135})
	testMerges(t, true, []int{1, 1, 2, 3, 10, 120})
}

func testMerges(t *testing.T, rewrites bool, want []int) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		f := newFake()
		f.of.settle, f.of.rewrites = NewScript("return {}"), rewrites
		f.hangs.Store(true)
		var all sync.WaitGroup
		for _, n := range []int{1, 1, 2, 3, 120, 10} {
			m := store.MergeRequest{
				Key: store.NewKey("policy", strconv.Itoa(n)), Limit: &store.Limit{Window: time.Hour},
				Entries: make([]store.Entry, n),
			}
			all.Go(func() {
				if err := f.Merge(t.Context(), m); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		close(f.resume)
		all.Wait()
		var sizes []int
		for _, args := range f.sent {
			sizes = append(sizes, args[2].(int))
		}
		if slices.Sort(sizes); !slices.Equal(sizes, want) {
			t.Errorf("entries of commands, where logs are rewritten (%v): %v, want %v", rewrites, sizes, want)
		}
	})
}

// A caller that leaves gets a LeftError, and hears when the call ends.
func TestCallersThatLeave(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f, p := newFake(), newPlan()
		f.hangs.Store(true)
		f.all.most = fewBatches
		endings := make(map[string]bool)
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, key := range []string{"sent", "another", "waiting"} {
			limit := timeout
			if key == "waiting" {
				limit = timeout / 2 // while the others are in flight
			}
			all.Go(func() {
				begun := time.Now()
				err := f.askWithin(limit, p, key)
				var gone *store.LeftError
				if took := time.Since(begun); !errors.As(err, &gone) || took < limit || took > limit+yields*yield {
					t.Errorf("%s: %v after %v", key, err, took)
					return
				}
				var failed *store.StoreError
				if !errors.As(err, &failed) || failed.Class != ClassTimeout {
					t.Errorf("%s: %v, want the class timeout", key, err)
				}
				gone.Then(func() {
					mu.Lock()
					defer mu.Unlock()
					endings[key] = true
				})
			})
			synctest.Wait()
		}
		all.Wait()
		if len(endings) != 1 || !endings["waiting"] {
			t.Errorf("while the server hangs: %v have ended", endings)
		}
		close(f.resume)
		synctest.Wait()
		if len(endings) != 3 {
			t.Errorf("in the end: %v", endings)
		}
		if got, want := f.keys(), []string{"sent", "another"}; !slices.Equal(got, want) {
			t.Errorf("sent were %q, want %q", got, want)
		}
	})
}

// Each caller leaves when its own context ends, whatever context it has, whether its question was sent or not, and in
// which order they came. One timer wakes them all, each once.
func TestCallersLeaveInTime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f, p := newFake(), newPlan()
		f.hangs.Store(true)
		f.all.most = fewBatches
		var all sync.WaitGroup
		for i, ms := range []int{80, 31, 90, 20, 30, 32, 70, 33, 10, 200} {
			limit := time.Duration(ms) * time.Millisecond
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if i%3 != 0 {
				ctx = within.New(t.Context(), limit)
			}
			all.Go(func() {
				begun := time.Now()
				err := f.Do(ctx, p, fresh(fmt.Sprint(i/2))) // two questions of each key
				var gone *store.LeftError
				leaves := limit + yields*yield
				if took := time.Since(begun); limit < timeout && (!errors.As(err, &gone) || took != leaves) {
					t.Errorf("caller %d: %v after %v, want a LeftError after %v", i, err, took, leaves)
				} else if limit > timeout && (err != nil || took != timeout) {
					t.Errorf("caller %d: %v after %v, want an answer after %v", i, err, took, timeout)
				}
			})
			synctest.Wait()
		}
		time.Sleep(timeout)
		f.hangs.Store(false)
		close(f.resume)
		all.Wait()
		b := p.queueOf(f.Conn, f.all)
		time.Sleep(2 * timeout)
		if synctest.Wait(); len(b.calls) > 0 || !b.ends.IsZero() {
			t.Errorf("in the end there are %d calls, and the watch looks at %v", len(b.calls), b.ends)
		}
	})
}

// A question that is used again is not answered by what woke its caller before.
func TestQuestionsAreUsedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f, p := newFake(), newPlan()
		q := fresh("k")
		q.from = &f.questions
		q.wake()
		f.hangs.Store(true)
		time.AfterFunc(timeout, func() { close(f.resume) })
		begun := time.Now()
		if err := f.Do(t.Context(), p, q); err != nil || time.Since(begun) != timeout || len(q.Reply) != 1 {
			t.Errorf("%v, %v after %v; want an answer after %v", q.Reply, err, time.Since(begun), timeout)
		}
	})
}

// Calls that nobody waits for do not count, up to 64 of a server.
func TestCallsOfAServerThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFake()
		f.hangs.Store(true)
		plans := make([]*Plan, 50)
		for i := range plans {
			plans[i] = newPlan()
		}
		refused := 0
		for range 10 {
			var all sync.WaitGroup
			for i, p := range plans {
				all.Go(func() {
					for range 2 {
						begun := time.Now()
						switch err := f.ask(p, fmt.Sprint(i)); {
						case err == nil:
							t.Error("answered")
						case time.Since(begun) == 0:
							var failed *store.StoreError
							if !errors.As(err, &failed) || failed.Class != ClassTimeout {
								t.Errorf("%v, want the class timeout", err)
							}
							f.mu.Lock()
							refused++
							f.mu.Unlock()
						}
					}
				})
			}
			all.Wait()
		}
		if f.most != mostCalls || refused == 0 {
			t.Errorf("%d calls under way, want %d; %d questions refused at once", f.most, mostCalls, refused)
		}
		f.hangs.Store(false)
		close(f.resume)
		synctest.Wait()
		if n := f.all.abandoned.Load(); n != 0 {
			t.Errorf("%d calls are abandoned after all have ended", n)
		}
		for i, p := range plans {
			b := p.queueOf(f.Conn, f.all)
			err := f.ask(p, "after")
			if synctest.Wait(); err != nil || b.inFlight != 0 || len(b.turns) > 0 {
				t.Errorf("plan %d: %v, %d in flight, %d keys wait", i, err, b.inFlight, len(b.turns))
			}
		}
	})
}

// Pings have places of their own. Two are in flight, and those that wait become one.
func TestPings(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f, p, ping := newFake(), newPlan(), newPlan()
		ping.Ping = true
		f.hangs.Store(true)
		for f.ask(p, "a"); f.all.abandoned.Load() < mostCalls; f.ask(p, "a") {
			continue
		}
		f.mu.Lock()
		f.sent = nil
		f.mu.Unlock()
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if err := f.ask(ping, "ping"); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if got := f.keys(); len(got) != 2 {
			t.Errorf("%d pings are under way", len(got))
		}
		close(f.resume)
		all.Wait()
		if got := f.keys(); len(got) != 3 {
			t.Errorf("%d pings for 5 callers", len(got))
		}
	})
}

// The context of a call has the values of a caller's. It ends long after all callers have left.
func TestContextsOfCalls(t *testing.T) {
	type key struct{}
	inBubble(t, func(t *testing.T) {
		f := newFake()
		ended := make(chan time.Time, 1)
		f.process = func(ctx context.Context, _ redis.Cmder) error {
			if ctx.Value(key{}) != "value" {
				t.Errorf("the value is %v", ctx.Value(key{}))
			}
			<-ctx.Done()
			ended <- time.Now()
			return ctx.Err()
		}
		for _, c := range []struct {
			timeout, want time.Duration
			ping          bool
		}{
			{timeout, time.Second + timeout, false}, {time.Second, 8 * time.Second, false}, {timeout, timeout, true},
		} {
			ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), c.timeout)
			begun, p := time.Now(), newPlan()
			p.Ping = c.ping
			f.Do(ctx, p, fresh("a"))
			cancel()
			if got := (<-ended).Sub(begun); got < c.want || got > c.want+8*yields*yield {
				t.Errorf("%+v: it ended after %v", c, got)
			}
		}
	})
}

// A panic of a hook is an error.
func TestPanicOfAHook(t *testing.T) {
	f := newFake()
	f.process = func(context.Context, redis.Cmder) error { panic("hook") }
	err := f.Do(t.Context(), newPlan(), fresh("a"))
	var failed *store.StoreError
	if !errors.As(err, &failed) || failed.Class != ClassProtocol || !strings.Contains(err.Error(), "hook") {
		t.Error(err)
	}
	if err = f.until(t.Context(), func() error { panic("hook") }); !errors.As(err, &failed) {
		t.Error(err)
	}
}

func TestRecent(t *testing.T) {
	var r Recent[int, *int]
	newValue := func() *int { return new(int) }
	first := r.Get(0, newValue)
	for i := range mostRecent {
		r.Get(i, newValue)
	}
	if r.Get(0, newValue) != first {
		t.Error("a value was made again that was there")
	}
	r.Get(-1, newValue)
	if len(r.values) != mostRecent || r.Get(0, newValue) == first {
		t.Errorf("%d values, and the oldest is there: %v", len(r.values), r.Get(0, newValue) == first)
	}
	if len(r.values) != mostRecent || len(r.keys) != mostRecent {
		t.Errorf("%d values, %d keys", len(r.values), len(r.keys))
	}
}
