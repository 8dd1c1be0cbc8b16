package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/redisstream"
	"github.com/sashlimit/sash/core/store"
)

// A client of unknown kind has no pipeline, which batches of several keys once needed.
func TestManyKeysThroughAnyClient(t *testing.T) {
	const callers, each, keys, quota = 32, 40, 8, 50
	client := anyClient{start(t)}
	l := newLimiter(t, core.PerHour(quota), redisstore.New(client))
	var admitted [keys]atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := range each {
				k := (i + j) % keys
				d, err := l.Allow(context.Background(), fmt.Sprint(k))
				if err != nil {
					t.Error(err)
					return
				}
				if d.Allowed {
					admitted[k].Add(1)
				}
			}
		})
	}
	wg.Wait()
	for k := range admitted {
		if n := admitted[k].Load(); n != quota {
			t.Errorf("key %d: %d admitted, want %d", k, n, quota)
		}
	}
	var batch []store.Take
	plan := planOf(core.Limits{core.PerHour(1)}, store.Plan{Keep: time.Hour})
	for i, key := range keysOf(t, 5, "batch") {
		batch = append(batch, store.Take{Key: key, Plan: plan, Cost: 1, ID: uint64(i + 1)})
	}
	for _, want := range []bool{true, false} {
		for i := range batch {
			batch[i].ID += 100
		}
		answers, err := redisstore.TakeTogether(t.Context(), redisstore.New(client), false, batch)
		if err != nil {
			t.Fatal(err)
		}
		for i := range answers {
			if answers[i].Allowed != want {
				t.Errorf("take %d: allowed %v, want %v", i, answers[i].Allowed, want)
			}
		}
	}
}

// Entries that a longer window still holds were counted in the short one that was asked about.
func TestShortWindowOfALongLog(t *testing.T) {
	c := newClock(start(t))
	limit := core.PerHour(100)
	l := newLimiter(t, core.LimitBy(func(context.Context) core.Limits { return core.Limits{limit} }), newStore(c))
	used := func(want int) {
		t.Helper()
		if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed || d.Used != want {
			t.Errorf("allowed %v, used %d, %v; want %d", d.Allowed, d.Used, err, want)
		}
	}
	used(0)
	c.Advance(time.Hour - 10*time.Second)
	used(1)
	c.Advance(11 * time.Second) // the first has left, the second is older than a second
	limit = core.PerSecond(5)
	used(0)
	used(1)
	limit = core.PerHour(100)
	used(3)
}

// The argument with a cost of seven digits is as long as two ids, and was taken for the second id.
func TestCostOfSevenDigits(t *testing.T) {
	logs := full(redisstore.New(start(t)))
	for name, limits := range map[string]core.Limits{
		"one limit": {core.PerHour(100)}, "two": {core.PerHour(100), core.PerDay(1000)},
	} {
		l := newLimiter(t, limits, logs)
		for _, cost := range []int{100_001, 1_234_567, core.MaxQuota, core.MaxQuota + 1} {
			d, err := l.AllowN(t.Context(), "k", cost)
			entries, logErr := l.Log(t.Context(), "k")
			if d.Allowed || !errors.Is(err, core.ErrCostExceedsQuota) || len(entries) != 0 || logErr != nil {
				t.Errorf("%s, cost %d: allowed %v, %v; left %v, %v", name, cost, d.Allowed, err, entries, logErr)
			}
		}
	}
}

// A take of more units than two bytes number is merged whole.
func TestMergeOfLargeCost(t *testing.T) {
	logs, key := redisstore.New(start(t)), keysOf(t, 1, "k")[0]
	request := store.MergeRequest{Key: key, Keep: time.Hour, Entries: []store.Entry{{ID: 1, Cost: 70_000}}}
	if err := full(logs).Merge(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	entries, err := full(logs).Log(t.Context(), key, time.Hour)
	if err != nil || len(entries) != 1 || entries[0].Cost != 70_000 {
		t.Errorf("%v, %v; want 70,000 units", entries, err)
	}
}

// A panic of the client once kept its slot among the batches in flight: after two of them no take was answered.
func TestPanicsDoNotBlockOthers(t *testing.T) {
	rdb := start(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": rdb.Options().Addr}})
	defer ring.Close()
	own, hook := &panics{Client: rdb}, new(panics)
	hooked := redis.NewClient(rdb.Options())
	defer hooked.Close()
	hooked.AddHook(hook)
	ring.AddHook(hook)
	for name, client := range map[string]redisstore.Client{"own type": own, "hook": hooked, "pipeline's hook": ring} {
		logs, keys := redisstore.New(client), keysOf(t, 7, "panics")
		limits := core.Limits{core.PerHour(1)}
		plan := planOf(limits, store.Plan{Keep: time.Hour})
		var id atomic.Uint64
		take := func(i int) (store.Answer, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			return coretest.Take(ctx, logs, store.Take{
				Key: keys[i%len(keys)], Plan: plan, Cost: 1, ID: id.Add(1), Mode: store.ModePeek,
			})
		}
		own.on.Store(true)
		hook.on.Store(true)
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				if _, err := take(i); !errors.As(err, new(*core.StoreError)) {
					t.Errorf("%s: a take that panics: %v", name, err)
				}
			})
		}
		wg.Wait()
		own.on.Store(false)
		hook.on.Store(false)
		for i := range keys {
			if a, err := take(i); err != nil || !a.Allowed {
				t.Errorf("%s: afterwards: %+v, %v", name, a, err)
			}
		}
	}
}

// panics is a client, or a hook of one, that does so while it is on.
type panics struct {
	redisstore.Client

	on atomic.Bool
}

func (p *panics) boom() {
	if p.on.Load() {
		panic("boom")
	}
}

func (p *panics) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	p.boom()
	return p.Client.EvalSha(ctx, sha1, keys, args...)
}

func (p *panics) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *panics) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		p.boom()
		return next(ctx, cmd)
	}
}

func (p *panics) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		p.boom()
		return next(ctx, cmds)
	}
}

// A recorded denial replaces an admitted entry, so undoing the denial once freed a unit of the quota.
func TestUndoneDenialsMakeNoRoom(t *testing.T) {
	inBothStores(t, func(t *testing.T, logs core.Store) {
		l := newLimiter(t, core.PerHour(2), logs, core.WithCountDenied())
		for i := range 10 {
			d, err := l.Allow(t.Context(), "k")
			if err != nil || d.Allowed != (i < 2) {
				t.Errorf("request %d: allowed %v, %v", i+1, d.Allowed, err)
			}
			if !d.Allowed {
				if err := errors.Join(d.Settle(t.Context(), 1), d.Undo(t.Context())); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// A denial under a small plan once trimmed the log to that plan's quota, so that the large plan began anew.
func TestSmallPlansDenialsLeaveALargePlansLog(t *testing.T) {
	inBothStores(t, func(t *testing.T, logs core.Store) {
		quota := 100
		policy := core.LimitBy(func(context.Context) core.Limits { return core.Limits{core.PerHour(quota)} })
		l := newLimiter(t, policy, logs, core.WithCountDenied())
		ask := func(plan int, want bool) {
			t.Helper()
			quota = plan
			if d, err := l.Allow(t.Context(), "k"); err != nil || d.Allowed != want {
				t.Errorf("of %d: allowed %v, used %d, %v", plan, d.Allowed, d.Used, err)
			}
		}
		ask(5, true)
		for range 99 {
			ask(100, true)
		}
		for range 3 {
			ask(5, false)
			ask(100, false)
		}
	})
}

func inBothStores(t *testing.T, f func(*testing.T, core.Store)) {
	t.Run("memory", func(t *testing.T) { f(t, core.NewMemoryStore()) })
	t.Run("redis", func(t *testing.T) { f(t, redisstore.New(start(t))) })
}

// The unit that decided was none from the future, so the others stayed in the short window until time had caught up.
func TestClockStepsBackUnderTwoLimits(t *testing.T) {
	c := newClock(start(t))
	l := newLimiter(t, core.Limits{core.PerSecond(5), core.PerHour(1000)}, newStore(c))
	stepsBack(t, c, func() (bool, error) {
		d, err := l.Allow(t.Context(), "k")
		return d.Allowed, err
	})
}

// stepsBack sets the clock back under limits of 5 a second and 1,000 an hour.
func stepsBack(t *testing.T, c clock, ask func() (bool, error)) {
	admitted := func(tries int) (n int) {
		t.Helper()
		for range tries {
			ok, err := ask()
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				n++
			}
		}
		return n
	}
	admitted(1)
	c.Advance(20 * time.Minute)
	admitted(3)
	c.Advance(-10 * time.Minute)
	if n := admitted(6); n != 2 {
		t.Errorf("%d admitted at the step, want the 2 that were left", n)
	}
	c.Advance(store.LongestLease)
	for second := range 5 {
		c.Advance(time.Second)
		if n := admitted(6); n != 5 {
			t.Errorf("%d admitted %d seconds after the step, want 5", n, second+1)
		}
	}
}

// A batch that was sent again after windows had passed once got a reply that could not be parsed: a denial with room
// left, fewer units than those of the take, or none at all.
func TestLateReplays(t *testing.T) {
	const seed = 3
	r := rand.New(rand.NewPCG(seed, 1))
	c := &late{clock: newClock(start(t)), r: r}
	logs, id := newStore(c), uint64(1<<41)
	for i, limits := range []core.Limits{
		{{Quota: 5, Window: time.Second}},
		{{Quota: 2, Window: time.Millisecond}},
		{{Quota: 3, Window: 100 * time.Millisecond}, {Quota: 12, Window: 5 * time.Second}},
	} {
		keep := limits[len(limits)-1].Window
		for _, mode := range []store.Mode{store.ModeCharge, store.ModePeek, store.ModeRecord, store.ModeChargeDenied} {
			keys := keysOf(t, 3, fmt.Sprintf("late.%d.%d", i, mode))
			for round := range 300 {
				key := keys[r.IntN(len(keys))]
				var batch []store.Take
				for range 1 + r.IntN(6) {
					id++
					cost := 1
					if r.IntN(4) == 0 {
						cost = 1 + r.IntN(4)
					}
					plan := planOf(limits, store.Plan{Keep: keep, Bound: 12})
					batch = append(batch, store.Take{Key: key, Plan: plan, Cost: cost, ID: id, Mode: mode})
					if mode == store.ModeChargeDenied { // a batch has one take of this mode
						break
					}
				}
				c.again = r.IntN(2) == 0
				answers, err := redisstore.TakeTogether(t.Context(), logs, true, batch)
				if err != nil {
					t.Fatalf("%v, mode %d, round %d, sent again %v after %v: %v",
						limits, mode, round, c.again, c.after, err)
				}
				for j, a := range answers {
					if a.Allowed && a.Retry != 0 || a.Retry < 0 || a.Retry > keep {
						t.Errorf("%v, mode %d, round %d, take %d: %+v", limits, mode, round, j, a)
					}
				}
				c.Advance(time.Duration(r.IntN(300_000)) * time.Microsecond)
			}
		}
	}
}

// late loses a reply, and sends the command again when some time has passed.
type late struct {
	clock

	r     *rand.Rand
	again bool
	after time.Duration
}

func (c *late) Process(ctx context.Context, cmd redis.Cmder) error {
	err := c.clock.Process(ctx, cmd)
	if err != nil || !c.again {
		return err
	}
	c.after = time.Duration(c.r.IntN(900_000)) * time.Microsecond
	c.Advance(c.after)
	return c.clock.Process(ctx, cmd)
}

// tap keeps what a store was last asked about, and has answered.
type tap struct {
	store.Full

	key  store.Key
	last store.Answer
}

func (s *tap) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	s.key = takes[0].Key
	err := s.Full.Take(ctx, takes, answers)
	s.last = answers[0]
	return err
}

// TestSeveralLimits checks cases of the short path for several limits.
func TestSeveralLimits(t *testing.T) {
	rdb := start(t)
	c := newClock(rdb)
	s := &tap{Full: full(newStore(c))}
	l := newLimiter(t, core.Limits{core.PerSecond(3), {Quota: 20, Window: 10 * time.Second}}, s)
	allow := func() core.Decision {
		t.Helper()
		d, err := l.Allow(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	log := func() (int64, time.Duration) {
		key := only(t, rdb)
		return rdb.ZCard(t.Context(), key).Val(), rdb.PTTL(t.Context(), key).Val()
	}

	// A log of which units leave as others come is as long as its quota, and outlives what is in it.
	for range 100 {
		for range 3 {
			if d := allow(); !d.Allowed && d.Violated[0] != "20-per-10s" {
				t.Fatalf("denied by %v", d.Violated)
			}
		}
		c.Advance(time.Second)
		if n, ttl := log(); n > 20 || ttl < 10*time.Second {
			t.Fatalf("%d entries, which live for %v", n, ttl)
		}
	}
	// A denial says of a window that is empty that there is nothing to leave it.
	c.Advance(time.Minute)
	for range 7 {
		for range 3 {
			allow()
		}
		c.Advance(time.Second)
	}
	d := allow()
	first, second := s.last.State[0], s.last.State[1]
	if d.Allowed || first != (store.State{}) || second.Used != 20 || second.Reset <= 0 {
		t.Errorf("%+v: %+v", d, s.last)
	}
	// A take that is settled above its quota denies others, and is no error of the server.
	c.Advance(time.Minute)
	d = allow()
	if err := d.Settle(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	if d := allow(); d.Allowed || d.Degraded || d.Used != 5 || !slices.Equal(d.Violated, []string{"3-per-second"}) {
		t.Errorf("behind 5 of 3: %+v", d)
	}
	if entries, err := s.Log(t.Context(), s.key, time.Minute); err != nil || len(entries) != 1 || entries[0].Cost != 5 {
		t.Errorf("the log is %v, %v; want one entry of 5 units", entries, err)
	}
}

// The TTL of a busy log is not renewed by each take, but always before it ends.
func TestBusyLogsStay(t *testing.T) {
	rdb := start(t)
	hundred := core.Limit{Quota: 100, Window: 10 * time.Second}
	for _, c := range []struct {
		limits core.Limits
		store  core.Store
	}{
		{core.Limits{hundred}, redisstore.New(rdb)},
		{core.Limits{core.PerSecond(50), hundred}, redisstore.New(rdb)},
		{core.Limits{hundred}, redisstream.New(rdb)},
	} {
		rdb.FlushAll(t.Context())
		l := newLimiter(t, c.limits, c.store)
		for range 40 {
			l.Allow(t.Context(), "k")
		}
		key := only(t, rdb)
		begun := time.Now()
		rdb.PExpire(t.Context(), key, 10050*time.Millisecond)
		if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		if ttl := rdb.PTTL(t.Context(), key).Val(); ttl+time.Since(begun) < 10500*time.Millisecond {
			t.Errorf("%v: a log whose last unit leaves in 10 s ends in %v", c.limits, ttl)
		}
	}
}

// Several fixed limits under the name of a policy whose windows vary keep the entries that it needs.
func TestSeveralLimitsOnVariedLog(t *testing.T) {
	c := newClock(start(t))
	name := core.WithName("plan")
	perHour := core.LimitBy(func(context.Context) core.Limits { return core.Limits{core.PerHour(6)} })
	hour := newLimiter(t, perHour, newStore(c), name)
	short := newLimiter(t, core.Limits{core.PerSecond(30), core.PerMinute(60)}, newStore(c), name)
	allow := func(l *core.Limiter) bool {
		d, err := l.Allow(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		return d.Allowed
	}
	for range 5 {
		allow(hour)
	}
	c.Advance(2 * time.Minute)
	if !allow(short) {
		t.Error("denied by what has left its windows")
	}
	if allow(hour) {
		t.Error("a seventh within the hour")
	}
}

// Where a script removed first what had left, it was refused there, and with it the denial of a full log.
func TestFullLogsDenyWhileWritesAreRefused(t *testing.T) {
	rdb := start(t)
	c := newClock(rdb)
	l := newLimiter(t, core.Limits{{Quota: 5, Window: time.Second}}, newStore(c))
	ask := func(key string) (bool, error) {
		d, err := l.Allow(t.Context(), key)
		return d.Allowed, err
	}
	for range 5 {
		if allowed, err := ask("spread"); !allowed {
			t.Fatal(err)
		}
		c.Advance(200 * time.Millisecond)
	}
	for range 5 {
		if allowed, err := ask("full"); !allowed {
			t.Fatal(err)
		}
	}
	if allowed, err := ask("spread"); !allowed { // the latest answer is of a log that entries leave
		t.Fatal(err)
	}
	c.Advance(200 * time.Millisecond)
	if err := rdb.ConfigSet(t.Context(), "min-replicas-to-write", "3").Err(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if allowed, err := ask("spread"); err == nil { // its first entry has left, so there is room
			t.Errorf("spread: allowed %v without replicas", allowed)
		}
		if allowed, err := ask("full"); allowed || err != nil {
			t.Errorf("full: allowed %v, %v", allowed, err)
		}
	}
}

// A process with a shorter window removes what the longer window of another with the same name still needs. It does not
// if the other chooses its limit by LimitBy, as docs/operating.md says of changed limits: without that, 37 were
// admitted.
func TestLongerWindowBesideOldProcesses(t *testing.T) {
	c := newClock(start(t))
	with := func(p core.Policy) *core.Limiter {
		l, err := core.New(p, core.Global(), core.WithName("api"), core.WithStore(newStore(c)), core.WithDenyCache(0),
			core.WithTimeout(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	take := func(l *core.Limiter) bool {
		d, err := l.Allow(t.Context(), "k")
		if err != nil || d.Degraded {
			t.Fatal(d, err)
		}
		return d.Allowed
	}
	long, admitted := core.PerHour(10), 0
	before := with(core.PerSecond(10))
	now := with(core.LimitBy(func(context.Context) core.Limits { return core.Limits{long} }))
	for range 4 {
		for range 12 {
			if take(now) {
				admitted++
			}
		}
		c.Advance(2 * time.Second)
		take(before)
	}
	if admitted != 10 || take(with(long)) { // which follows when all old processes have gone
		t.Errorf("%d admitted in one window, want 10", admitted)
	}
}
