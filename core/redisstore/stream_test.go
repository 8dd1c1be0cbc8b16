package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/internal/deadline"
	"github.com/sashlimit/sash/core/internal/redisclient"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/redisstream"
	"github.com/sashlimit/sash/core/store"
)

// newStreams is newStore for logs in streams, of a single server.
func newStreams(c processor) core.Store {
	return redisstore.Single(redisstore.WithProcess(redisstream.New(c), c.Process))
}

// inSets and inStreams make stores of the two kinds.
func inSets(c redisstore.Client) core.Store    { return redisstore.New(c) }
func inStreams(c redisstore.Client) core.Store { return redisstream.New(c) }

// storedStream is the key of a stream.
func storedStream(key store.Key) string { return "sash:s" + key.String() }

var streamTakeText = redisclient.Assemble(os.DirFS("../redisstream").(fs.ReadFileFS), "take")

func TestStreams(t *testing.T) {
	t.Parallel()
	for _, repeats := range []bool{false, true} {
		t.Run(fmt.Sprint("repeats ", repeats), func(t *testing.T) {
			t.Parallel()
			testStreams(t, repeats)
		})
	}
}

func testStreams(t *testing.T, repeats bool) {
	var running string
	empty := startOnce(t)
	coretest.Store(t, coretest.StoreConfig{
		OneLimit: true,
		Repeats:  repeats,
		Checks:   checksOfStreams,
		New: func(t *testing.T) (core.Store, func(time.Duration)) {
			rdb := empty(t)
			if running == "ConcurrentExactly" && !repeats { // on the server's clock
				return redisstream.New(rdb), nil
			}
			c := newClock(rdb)
			if repeats {
				c.processor = twice{processor: c.processor, t: t}
			}
			return newStreams(c), c.Advance
		},
		Run: func(t *testing.T, name string, f func(*testing.T)) {
			if running = name; name != "ConcurrentExactly" || !repeats { // which is slow where the clock stands still
				t.Run(name, f)
			}
		},
	})
}

const checksOfStreams = 20_000

// In small worlds the first reply is as if a command had been executed once, and the second execution leaves the logs
// as they are.
func TestExploreStreams(t *testing.T) {
	t.Parallel()
	explore(t, 2000, coretest.ExploreConfig{OneLimit: true}, func(t *testing.T, c clock) core.Store {
		c.processor = firstOfTwo{c.processor, t}
		return newStreams(c)
	})
}

// lateCopies executes commands a second time after others, as a server does that has received a command on two
// connections.
type lateCopies struct {
	processor

	t    *testing.T
	r    *rand.Rand
	seen []redis.Cmder
}

func (c *lateCopies) Process(ctx context.Context, cmd redis.Cmder) error {
	err := c.processor.Process(ctx, cmd)
	if runs(cmd, streamTakeText) {
		c.seen = append(c.seen, redis.NewIntSliceCmd(ctx, cmd.Args()...))
	}
	for len(c.seen) > 0 && c.r.IntN(2) == 0 {
		i := c.r.IntN(len(c.seen))
		if err := c.processor.Process(ctx, c.seen[i]); err != nil {
			c.t.Error(err)
		}
		c.seen = slices.Delete(c.seen, i, i+1)
	}
	return err
}

// A take is in the log once, however late its command is executed again, and whatever else has happened to the log
// meanwhile but for a correction of that take.
func TestCommandsToStreamsThatAreExecutedLate(t *testing.T) {
	rdb := start(t)
	r := rand.New(rand.NewPCG(rand.Uint64(), 18))
	c := newClock(rdb)
	c.processor = &lateCopies{processor: rdb, t: t, r: r}
	logs := []core.Store{newStreams(c), newStreams(c)} // of two processes
	const window, quota = time.Hour, 5000
	plan := planOf(core.Limits{{Quota: quota, Window: window}}, store.Plan{})
	keys := keysOf(t, 3, "late")
	var taken [3]int
	for id := uint64(1); id <= 1000; id++ {
		c.Advance(time.Duration(r.IntN(3)) * time.Microsecond)
		k := r.IntN(len(keys))
		take := store.Take{Key: keys[k], Plan: plan, Cost: 1, ID: id}
		a, err := coretest.Take(t.Context(), logs[r.IntN(2)], take)
		if err != nil || !a.Allowed || a.State[0].Used != taken[k] {
			t.Fatalf("take %d: %+v, %v; want %d used", id, a, err, taken[k])
		}
		taken[k]++
		if r.IntN(5) == 0 { // an outage's entries, which make a new stream
			m := store.MergeRequest{Key: keys[k], Keep: window}
			m.Entries = []store.Entry{{ID: 1<<40 + id, Age: time.Second, Cost: 1}}
			if err := listing(logs[0]).Merge(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			taken[k]++
		}
	}
}

func TestClockStepsOfStreams(t *testing.T) { clockSteps(t, newStreams) }

// The entries of a clock that was ahead leave in one window, and no command is executed at a time before the reply
// that its sender has seen.
func TestStreamsOfAClockThatStepsBack(t *testing.T) {
	rdb := start(t)
	const window = time.Minute
	for _, step := range []time.Duration{time.Microsecond, time.Millisecond, 3 * time.Second, time.Hour} {
		for _, undone := range []bool{false, true} {
			c := newClock(rdb)
			c.processor = twice{processor: rdb, t: t}
			l := newLimiter(t, core.Limit{Quota: 5, Window: window}, newStreams(c), core.WithName(fmt.Sprint(
				"step.", step.Microseconds(), ".", undone)))
			allow := func(want bool, remaining int) core.Decision {
				t.Helper()
				d, err := l.Allow(t.Context(), "k")
				if err != nil || d.Allowed != want || d.Remaining != remaining || d.ResetAfter > window {
					t.Fatalf("step %v, undone %v: %+v, %v; want %v, %d left", step, undone, d, err, want, remaining)
				}
				return d
			}
			for i := range 4 {
				allow(true, 4-i)
			}
			d := allow(true, 0)
			if undone { // its id is the last of the stream nevertheless
				if err := d.Undo(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			c.Advance(-step)
			if undone {
				allow(true, 0)
			}
			if d := allow(false, 0); d.RetryAfter > window {
				t.Errorf("step %v: retry after %v", step, d.RetryAfter)
			}
			c.Advance(window)
			allow(true, 4)
		}
	}
}

// What comes with a command is the time of the reply before it, or 0 if the clock has stepped back since; for several
// servers it is a second earlier.
func TestTimeThatComesWithCommands(t *testing.T) {
	for _, single := range []bool{true, false} {
		c := newClock(start(t))
		var sent []int64
		s := redisstore.WithProcess(redisstream.New(c),
			func(ctx context.Context, cmd redis.Cmder) error {
				if args := cmd.Args(); args[0] == "eval" {
					sent = append(sent, args[len(args)-1].(int64))
				}
				return c.Process(ctx, cmd)
			})
		if single {
			s = redisstore.Single(s)
		}
		l := newLimiter(t, core.PerHour(5), s)
		for _, step := range []time.Duration{0, 2 * time.Second, -1500 * time.Millisecond, 0} {
			c.Advance(step)
			if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}
		begin := sent[1]
		want := []int64{0, begin, begin + 2_000_000, 0, begin + 500_000}
		if !slices.Equal(sent, want) || single != (begin == 1_763_700_000_000_007) {
			t.Errorf("single %v: sent %v, want %v", single, sent, want)
		}
	}
}

// On several servers, whose clocks may differ, commands come with an earlier time.
func TestStreamsOfSeveralServers(t *testing.T) {
	t.Parallel()
	for name, connect := range clientsOfAllKinds(t) {
		t.Run(name, func(t *testing.T) {
			client := connect()
			defer client.Close()
			l := newLimiter(t, core.PerMinute(5), redisstream.New(client))
			for _, key := range []string{"a", "b", "c", "d", "e"} {
				for i := range 10 {
					if d, err := l.Allow(t.Context(), key); err != nil || d.Allowed != (i < 5) {
						t.Fatalf("request %d of %s: %+v, %v", i, key, d, err)
					}
				}
			}
		})
	}
}

func TestLostRepliesChargeStreamsOnce(t *testing.T) {
	lostReplies(t, inStreams, func(rdb *redis.Client, key string) int64 { return rdb.XLen(t.Context(), key).Val() })
}

// Streams keep no more than WithCountDenied and Record ask for.
func TestStreamsAreTrimmed(t *testing.T) {
	rdb := start(t)
	c := newClock(rdb)
	logs := newStreams(c)
	plan := planOf(core.Limits{core.PerHour(2)}, store.Plan{Bound: 5})
	key := keysOf(t, 1, "trimmed")[0]
	ask := func(mode store.Mode, id uint64, used int) {
		t.Helper()
		a, err := coretest.Take(t.Context(), logs, store.Take{Key: key, Plan: plan, Cost: 1, ID: id, Mode: mode})
		if err != nil || a.State[0].Used != used {
			t.Errorf("take %d, mode %v: %+v, %v; want %d used", id, mode, a, err, used)
		}
	}
	for id, used := range []int{0, 1, 2, 3, 4, 5, 5} {
		ask(store.ModeChargeDenied, uint64(id+1), used)
		c.Advance(time.Second)
	}
	ask(store.ModePeek, 100, 5)
	pipe := rdb.Pipeline()
	for i := range store.MaxRecorded - 6 {
		id := fmt.Sprintf("1763700000000007-%d", i+100)
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: storedStream(key), ID: id, Values: []string{"i", "12345678"}})
	}
	rdb.Del(t.Context(), storedStream(key))
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	rdb.Expire(t.Context(), storedStream(key), 2*time.Hour)
	for id := range uint64(8) {
		ask(store.ModeRecord, 200+id, min(store.MaxRecorded-6+int(id), store.MaxRecorded))
	}
}

// A stream is in Redis at least as long as its youngest entry in the window, however little it had left before, and no
// longer than a second more.
func TestStreamsOutliveTheirEntries(t *testing.T) {
	rdb := start(t)
	c := newClock(rdb)
	logs := newStreams(c)
	keys, id := keysOf(t, 6, "outlive"), uint64(0)
	for i, limit := range []core.Limit{hundred, few} {
		for j, mode := range []store.Mode{store.ModeCharge, store.ModeRecord, store.ModeChargeDenied} {
			key := keys[3*i+j]
			ask := func(left time.Duration, act func() error) {
				t.Helper()
				if left > 0 && !rdb.PExpire(t.Context(), storedStream(key), clockMore+left).Val() {
					t.Fatal("no key")
				}
				id++
				least, most := lasts(t, rdb, storedStream(key), func() {
					if err := act(); err != nil {
						t.Fatal(err)
					}
				})
				if most < formsKeep || least > formsKeep+time.Second {
					t.Errorf("%v, mode %v, with %v left: the key stays for %v", limit, mode, left, most)
				}
			}
			take := func() error {
				plan := planOf(core.Limits{limit}, store.Plan{})
				take := store.Take{Key: key, Plan: plan, Cost: 1, ID: id, Mode: mode}
				_, err := coretest.Take(t.Context(), logs, take)
				return err
			}
			ask(0, take)
			c.Advance(time.Second)
			ask(time.Second, take)
			ask(formsKeep-50*time.Millisecond, take)
			ask(time.Second, func() error {
				entries := []store.Entry{{ID: id, Cost: 1}}
				return listing(logs).Merge(t.Context(), store.MergeRequest{Key: key, Keep: formsKeep, Entries: entries})
			})
		}
	}
}

// A stream and a sorted set are different logs, also under one prefix. A key of another type is refused.
func TestStreamsAndSetsAreApart(t *testing.T) {
	rdb := start(t)
	sets, streams := redisstore.New(rdb), redisstream.New(rdb)
	key := keysOf(t, 1, "apart")[0]
	take := store.Take{Key: key, Plan: planOf(core.Limits{core.PerHour(10)}, store.Plan{}), Cost: 1}
	for used := range 3 {
		for _, s := range []core.Store{sets, streams} {
			take.ID++
			if a, err := coretest.Take(t.Context(), s, take); err != nil || a.State[0].Used != used {
				t.Errorf("%T: %+v, %v; want %d used", s, a.State[0], err, used)
			}
		}
	}
	if err := streams.Reset(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if n := rdb.Exists(t.Context(), storedStream(key)).Val(); n != 0 || rdb.ZCard(t.Context(), stored(key)).Val() != 3 {
		t.Errorf("%d streams after a reset of the stream, want the sorted set alone", n)
	}
	rdb.Set(t.Context(), storedStream(key), "another program's", time.Minute)
	_, err := coretest.Take(t.Context(), streams, take)
	wantClass(t, err, redisstore.ClassType, "WithPrefix")
}

// A user who lacks a permission loses no log, and leaves no key without an expiry.
func TestMissingPermissionsForStreams(t *testing.T) {
	rdb := start(t)
	needed := append([]string{"EVAL", "EVALSHA"}, scriptCommands(t, "../redisstream")...)
	for i, missing := range append([]string{"none"}, needed...) {
		name := fmt.Sprint("user", i)
		rules := []any{"ACL", "SETUSER", name, "on", "nopass", "~sash:*", "-@all", "+ping", "+hello"}
		for _, command := range needed {
			if command != missing {
				rules = append(rules, "+"+command)
			}
		}
		if err := rdb.Do(t.Context(), rules...).Err(); err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(&redis.Options{Addr: rdb.Options().Addr, Username: name, Password: password})
		keys := keysOf(t, 2, name)
		allowed, streams := redisstream.New(rdb), redisstream.New(client)
		plan := planOf(core.Limits{{Quota: 3, Window: 10 * time.Minute}}, store.Plan{})
		for id := range uint64(3) {
			take := store.Take{Key: keys[0], Plan: plan, Cost: 1, ID: id + 1}
			if _, err := coretest.Take(t.Context(), allowed, take); err != nil {
				t.Fatal(err)
			}
		}
		for id := range uint64(5) {
			for _, key := range keys {
				a, err := coretest.Take(t.Context(), streams, store.Take{Key: key, Plan: plan, Cost: 1, ID: id + 10})
				if missing == "none" && (err != nil || a.Allowed != (key.Text == keys[1].Text && id < 3)) {
					t.Errorf("%s, take %d: %+v, %v", key.Text, id, a, err)
				}
			}
		}
		if size := rdb.XLen(t.Context(), storedStream(keys[0])).Val(); size < 3 {
			t.Errorf("without %s: %d entries of 3", missing, size)
		}
		client.Close()
	}
} // and checkKeys looks for what has no TTL

func TestCheckOfPermissionsForStreams(t *testing.T) {
	s := redistest.Start(t)
	needed := append([]string{"EVAL", "EVALSHA"}, scriptCommands(t, "../redisstream")...)
	client := func(name string, rules ...string) *redis.Client {
		all := []string{"ACL", "SETUSER", name, "reset", "on", "nopass", "~sash:*", "+info"}
		for _, command := range needed {
			all = append(all, "+"+command)
		}
		do(t, s, append(all, rules...)...)
		return plain(t, &redis.Options{Addr: s.Addr(), Username: name, Password: password})
	}
	wantProblems(t, redisstream.Check(t.Context(), client("enough")))
	for _, command := range needed {
		wantProblems(t, redisstream.Check(t.Context(), client("no-"+command, "-"+command)),
			[]string{"sash: store (auth): ", "ACL SETUSER <user> +" + strings.ToLower(command)})
	}
}

// replaying is a store of streams of which a take may fail, and which calls a function before it merges.
type replaying struct {
	store.Store
	listingStore

	fails  atomic.Bool
	before func()
}

func (s *replaying) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	if s.fails.Swap(false) {
		return errors.New("once")
	}
	return s.Store.Take(ctx, takes, answers)
}

func (s *replaying) Merge(ctx context.Context, m store.MergeRequest) error {
	s.before()
	return s.listingStore.Merge(ctx, m)
}

// A denial that is recorded, and decided again when what this process has admitted was replayed, counts once.
func TestDenialDuringReplayCountsOnce(t *testing.T) {
	streams := redisstream.New(start(t))
	s := &replaying{Store: streams, listingStore: listing(streams)}
	l, err := core.New(core.PerHour(3), core.Global(), core.WithStore(s), core.WithCountDenied(), core.WithDenyCache(0),
		core.WithTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	allow := func(key string, allowed bool) {
		t.Helper()
		if d, err := l.Allow(t.Context(), key); err != nil || d.Allowed != allowed {
			t.Errorf("%s: %v, %v; want allowed=%v", key, d, err, allowed)
		}
	}
	s.before = func() { allow("other", true) }
	for range 3 {
		allow("k", true)
	}
	s.fails.Store(true)
	allow("k", true)
	allow("k", false)
	entries, err := l.Log(t.Context(), "k")
	if len(entries) != 4 {
		t.Errorf("%v, %v; want two of the first, the one that was replayed, and a denial", entries, err)
	}
}

// A denial takes little time in a log that has many more units than its quota, as after this has become smaller.
func TestSmallerQuotaOfALongStream(t *testing.T) {
	rdb := start(t)
	key := keysOf(t, 1, "long")[0]
	const fill = `
		local now = redis.call('TIME')
		for i = 1, 200000 do
			local at = string.format('%.0f', (now[1] - 1) * 1000000 + i)
			redis.call('XADD', KEYS[1], at, 'i', string.format('%08d', i))
		end
		return redis.call('PEXPIRE', KEYS[1], 3600000)`
	if err := rdb.Eval(t.Context(), fill, []string{storedStream(key)}).Err(); err != nil {
		t.Fatal(err)
	}
	rdb.ConfigSet(t.Context(), "slowlog-log-slower-than", "0")
	streams, plan, least := redisstream.New(rdb), planOf(core.Limits{core.PerHour(5)}, store.Plan{}), time.Hour
	for id := range uint64(6) { // the first looks through the log, and the machine may be busy
		take := store.Take{Key: key, Plan: plan, Cost: 1, ID: id + 1}
		a, err := coretest.Take(t.Context(), streams, take)
		// The fifth newest has to leave, 199,995 µs after the oldest.
		if err != nil || a.Allowed || a.Retry-a.State[0].Reset != 199_995*time.Microsecond {
			t.Fatalf("%+v, %v", a, err)
		}
		for _, call := range rdb.SlowLogGet(t.Context(), 10).Val() {
			if strings.HasPrefix(call.Args[0], "eval") {
				least = min(least, call.Duration)
				break
			}
		}
	}
	if t.Logf("a denial takes %v", least); least > 25*time.Millisecond {
		t.Errorf("a denial takes %v", least)
	}
}

// The entries and the TTL of a stream are there after a restart.
func TestStreamsSurviveARestart(t *testing.T) {
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer rdb.Close()
	l := newLimiter(t, core.PerHour(3), redisstream.New(rdb))
	for i := range 4 {
		if d, err := l.Allow(t.Context(), "k"); err != nil || d.Allowed != (i < 3) {
			t.Fatal(d, err)
		}
	}
	s.Kill()
	s.Restart()
	if ttl := rdb.PTTL(t.Context(), only(t, rdb)).Val(); ttl <= 0 || ttl > time.Hour+time.Second {
		t.Errorf("PTTL %v after a restart", ttl)
	}
	d, err := l.Allow(t.Context(), "k")
	if err != nil || d.Allowed || d.Used != 3 {
		t.Errorf("%+v, %v; want a denial with 3 used", d, err)
	}
}

// A unit takes about 28 bytes. MEMORY USAGE of Redis 7.0 takes each node of the tree that has the parts of a stream for
// 244 bytes, which is too much: so where units are far from each other, the memory of the server is measured.
func TestBytesOfStreams(t *testing.T) {
	testlen.SkipRace(t)
	rdb := start(t)
	const quota = 1000
	rdb.ConfigSet(t.Context(), "slowlog-log-slower-than", "-1") // on a busy machine it fills with the commands below
	used := func() (n int) {                                    // without what clients and scripts take
		_, rest, _ := strings.Cut(rdb.Info(t.Context(), "memory").Val(), "used_memory_dataset:")
		fmt.Sscanf(rest, "%d", &n)
		return n
	}
	cases := []struct {
		window time.Duration
		logs   int
	}{
		{0, 2}, {time.Minute, 2}, {time.Minute, 200}, {time.Minute, 200}, {time.Hour, 200},
	}
	for n, c := range cases[:testlen.Of(2, len(cases))] { // many logs show what the server says of few
		clock := newClock(rdb)
		s, takes := newStreams(clock), make([]store.Take, c.logs)
		plan := planOf(core.Limits{{Quota: quota, Window: max(c.window, time.Minute)}}, store.Plan{})
		keys := keysOf(t, c.logs, fmt.Sprint("bytes.", n))
		before, told := used(), 0
		for range quota {
			for i := range keys {
				takes[i] = store.Take{Key: keys[i], Plan: plan, Cost: 1, ID: rand.Uint64()}
			}
			if _, err := redisstore.TakeTogether(t.Context(), s, true, takes); err != nil {
				t.Fatal(err)
			}
			clock.Advance(c.window / quota * 9 / 10)
		}
		grown := used() - before
		for i := range keys {
			told += int(rdb.MemoryUsage(t.Context(), storedStream(keys[i]), 0).Val())
		}
		memory, usage := float64(grown)/float64(quota*c.logs), float64(told)/float64(quota*c.logs)
		t.Logf("%d units in %v: %.2f bytes each, MEMORY USAGE %.1f", quota, c.window, memory, usage)
		if c.window == 0 && usage > 28 || usage > 34.5 {
			t.Errorf("%d units in %v: MEMORY USAGE tells %.1f bytes each", quota, c.window, usage)
		}
		// The first logs make the server allocate other memory as well, such as that of its Lua interpreter: up to
		// 1 MB, which few logs would turn into bytes for each unit.
		if n > 2 && memory > 28.1 {
			t.Errorf("%d units in %v take %.2f bytes each", quota, c.window, memory)
		}
	}
}

// A take that is sent once more under another deadline counts once, although replies to other takes came in between.
func TestStreamsKnowTakesThatAreAskedAgain(t *testing.T) {
	t.Parallel()
	rdb := start(t)
	s, key := redisstream.New(rdb), keysOf(t, 1, "again")[0]
	deadlines := deadline.New(time.Minute, nil)
	take := func(ctx context.Context, id uint64, used int) {
		t.Helper()
		plan := planOf(core.Limits{few}, store.Plan{})
		a, err := coretest.Take(ctx, s, store.Take{Key: key, Plan: plan, Cost: 1, ID: id})
		if err != nil || !a.Allowed || a.State[0].Used != used {
			t.Fatalf("take %d: %+v, %v; want %d units before", id, a, err, used)
		}
	}
	take(deadlines.Within(t.Context(), time.Now()), 1, 0)
	take(deadlines.Within(t.Context(), time.Now()), 2, 1)
	take(deadlines.Within(t.Context(), time.Now()), 3, 2)
	take(deadlines.Again(t.Context(), time.Now()), 1, 2)
	if n := rdb.XLen(t.Context(), storedStream(key)).Val(); n != 3 {
		t.Errorf("%d entries for 3 takes", n)
	}
}
