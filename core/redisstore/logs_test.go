package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/redisstream"
	"github.com/sashlimit/sash/core/store"
)

// newReal is newTester with a store on the clock of the server.
func newReal(t *testing.T, newStore func(redisstore.Client) store.Store) *tester {
	t.Helper()
	x := &tester{T: t, rdb: start(t), key: store.NewKey("test", "k")}
	x.Store = newStore(x.rdb)
	x.Full, _ = x.Store.(store.Full)
	return x
}

func inSets(c redisstore.Client) store.Store    { return redisstore.New(c) }
func inStreams(c redisstore.Client) store.Store { return redisstream.New(c) }

// A key lives at least as long as what was recorded last is in the window, however little it had left before, and no
// longer than a second more.
func TestTTL(t *testing.T) {
	const window = 10 * time.Second
	log, other := sliding(1000, window), sliding(1000, window+time.Microsecond)
	fixed := &store.Limit{Log: "f", Quota: 1000, Window: window, Algorithm: store.FixedWindow}
	counter := &store.Limit{Log: "s", Quota: 1000, Window: window / 2, Algorithm: store.SlidingCounter}
	bucket := &store.Limit{Log: "t", Quota: 1000, Refill: 1000, Window: window, Algorithm: store.TokenBucket}
	x := newReal(t, inSets)
	streams := newReal(t, inStreams)
	add := func(x *tester, mode store.Mode, cost int, limits ...*store.Limit) func() {
		return func() { x.take(mode, cost, limits...) }
	}
	merge := func(x *tester) func() {
		return func() {
			x.id++
			m := store.MergeRequest{Key: x.key, Limit: log, Entries: []store.Entry{{ID: x.id, Cost: 1}}}
			x.ok(x.Store.(store.Merger).Merge(t.Context(), m))
		}
	}
	for name, c := range map[string]struct {
		x     *tester
		write func()
		least time.Duration
	}{
		"a unit":       {x, add(x, store.ModeCharge, 1, log), window},
		"a cost":       {x, add(x, store.ModeCharge, 2, log), window},
		"two logs":     {x, add(x, store.ModeCharge, 1, log, other), window},
		"at most":      {x, add(x, store.ModeAtMost, 2, log), window},
		"recorded":     {x, add(x, store.ModeRecord, 1, log), window},
		"a denial":     {x, add(x, store.ModeChargeDenied, 1000, log), window},
		"merged":       {x, merge(x), window},
		"fixed window": {x, add(x, store.ModeCharge, 1, fixed), 0},
		"counter":      {x, add(x, store.ModeCharge, 1, counter), window / 2},
		"bucket":       {x, add(x, store.ModeCharge, 1, bucket), 0},
		"renewed": {x, func() {
			x.ok(x.Renew(t.Context(), store.Renewal{Key: x.key, Limit: log, IDs: []uint64{1}}))
		}, window},
		"a stream":      {streams, add(streams, store.ModeCharge, 1, log), window},
		"stream merged": {streams, merge(streams), window},
	} {
		x := c.x
		x.rdb.FlushAll(t.Context())
		for _, had := range []time.Duration{
			0, window / 100, window - 50*time.Millisecond, window + 150*time.Millisecond,
		} {
			for _, key := range x.rdb.Keys(t.Context(), "*").Val() {
				x.rdb.PExpire(t.Context(), key, had)
			}
			begun := time.Now()
			c.write()
			keys := x.rdb.Keys(t.Context(), "*").Val()
			for _, key := range keys {
				ttl := x.rdb.PTTL(t.Context(), key).Val()
				if passed := time.Since(begun); ttl < c.least-passed || ttl > window+time.Second || ttl <= 0 {
					t.Errorf("%s, where the key had %v: PTTL %v after %v", name, had, ttl, passed)
				}
			}
			if len(keys) == 0 {
				t.Errorf("%s: no key", name)
			}
		}
	}
}

// A denial writes nothing, also where some of the logs have room: so it is given where no writes are.
func TestDenialWritesNothing(t *testing.T) {
	full, empty, costs := sliding(5, time.Hour), sliding(9, 2*time.Hour), sliding(6, 3*time.Hour)
	for name, newStore := range map[string]func(redisstore.Client) store.Store{"set": inSets, "stream": inStreams} {
		x := newReal(t, newStore)
		changes := func() string {
			_, rest, _ := strings.Cut(x.rdb.Info(t.Context(), "persistence").Val(), "rdb_changes_since_last_save:")
			n, _, _ := strings.Cut(rest, "\r\n")
			return n
		}
		for range 5 {
			x.take(store.ModeCharge, 1, full)
		}
		asks := [][]*store.Limit{{full}}
		if name == "set" {
			x.take(store.ModeCharge, 6, costs)
			asks = append(asks, []*store.Limit{empty, full}, []*store.Limit{costs}, []*store.Limit{full, costs})
			x.ok(x.rdb.ConfigSet(t.Context(), "min-replicas-to-write", "3").Err())
		}
		before := changes()
		for _, limits := range asks {
			for _, mode := range []store.Mode{store.ModeCharge, store.ModePeek, store.ModeAtMost} {
				for range 3 {
					if a := x.take(mode, 1, limits...)[len(limits)-1]; a.Allowed || a.Retry == 0 {
						t.Errorf("%s, %v: %+v", name, mode, a)
					}
				}
			}
		}
		if after := changes(); after != before {
			t.Errorf("%s: denials and peeks made %s changes, and before them there were %s", name, after, before)
		}
	}
}

// A long log is listed in parts, so that no script keeps the server busy for long, also where many entries have one
// instant.
func TestLogIsListedInParts(t *testing.T) {
	for name, newStore := range map[string]func(redisstore.Client) store.Store{"set": inSets, "stream": inStreams} {
		x := newReal(t, newStore)
		l := sliding(5000, time.Hour)
		m := store.MergeRequest{Key: x.key, Limit: l}
		for n := range 1300 {
			age := time.Minute // of most, on both sides of the end of a part
			if n < 300 {
				age += time.Duration(n) * time.Second
			}
			m.Entries = append(m.Entries, store.Entry{ID: uint64(n + 1), Cost: 1, Age: age})
		}
		x.ok(x.Store.(store.Merger).Merge(t.Context(), m))
		all, err := x.Store.(store.Lister).Log(t.Context(), x.key, l)
		x.ok(err)
		for i := 1; i < len(all); i++ {
			if all[i].At.Before(all[i-1].At) {
				t.Errorf("%s: entry %d is older than the one before", name, i)
			}
		}
		x.want(name+": entries", len(all), len(m.Entries))
	}
}

// A take that is executed again late, when others have been recorded, stays at the instant when it was recorded.
func TestLateCopies(t *testing.T) {
	rdb := start(t)
	log, other := sliding(9, time.Minute), sliding(9, time.Hour)
	for name, c := range map[string]struct {
		newStore func(*client) store.Store
		cost     int
		limits   []*store.Limit
	}{
		"a unit":   {func(c *client) store.Store { return redisstore.New(c) }, 1, []*store.Limit{log}},
		"a cost":   {func(c *client) store.Store { return redisstore.New(c) }, 2, []*store.Limit{log}},
		"two logs": {func(c *client) store.Store { return redisstore.New(c) }, 2, []*store.Limit{log, other}},
		"a stream": {func(c *client) store.Store { return redisstream.New(c, redisstream.WithOneServer()) }, 1,
			[]*store.Limit{log}},
	} {
		var late *client
		x := &tester{T: t, rdb: rdb, key: store.NewKey("test", "k")}
		x.Clocked = clockedBy(rdb, false, func(made *client) store.Store { late = made; return c.newStore(made) })(t)
		x.take(store.ModeCharge, c.cost, c.limits...)
		again := *late.again.Load()
		x.Advance(10 * time.Second)
		x.take(store.ModeCharge, c.cost, c.limits...)
		again()
		x.want(name+": used", x.used(log), 2*c.cost)
		x.Advance(50 * time.Second)
		x.want(name+": used when the first has left", x.used(log), c.cost)
	}
}

// A reset removes what a clock has recorded that was ahead since, and keeps what is younger.
func TestResetOfTheFuture(t *testing.T) {
	x, l := newTester(t, false), sliding(9, time.Minute)
	x.Advance(10 * time.Second)
	x.take(store.ModeCharge, 2, l)
	x.Advance(-10 * time.Second)
	x.ok(x.Store.Reset(t.Context(), x.key, []*store.Limit{l}, time.Second))
	x.Advance(10 * time.Second)
	x.want("used at the instant of the entry", x.used(l), 0)
}
