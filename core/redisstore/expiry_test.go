package redisstore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
)

const (
	formsKeep = 10 * time.Second
	clockMore = time.Hour // what redistest.Clock adds to the TTL of a key
)

var (
	hundred = core.Limit{Quota: 100, Window: formsKeep}
	few     = core.Limit{Quota: 6, Window: formsKeep}
)

// forms are the ways in which a take may be recorded, all of them in logs that are kept for ten seconds.
var forms = []struct {
	name string
	take store.Take
}{
	{"one limit", store.Take{Plan: planOf(core.Limits{hundred}, store.Plan{})}},
	{"one limit, few units a second", store.Take{Plan: planOf(core.Limits{few}, store.Plan{})}},
	{"several limits", store.Take{Plan: planOf(core.Limits{core.PerSecond(50), hundred}, store.Plan{})}},
	{"several limits, few units a second", store.Take{Plan: planOf(core.Limits{core.PerSecond(5), few}, store.Plan{})}},
	{"a cost", store.Take{Plan: planOf(core.Limits{hundred}, store.Plan{}), Cost: 3}},
	{"a shadow", store.Take{Plan: planOf(core.Limits{core.PerSecond(50), hundred}, store.Plan{Shadow: 1})}},
	{"windows that vary", store.Take{Plan: planOf(core.Limits{core.PerSecond(50)}, store.Plan{Varies: true})}},
	{"record", store.Take{Plan: planOf(core.Limits{hundred}, store.Plan{}), Mode: store.ModeRecord}},
	{"counts denials", store.Take{Plan: planOf(core.Limits{hundred}, store.Plan{}), Mode: store.ModeChargeDenied}},
}

// An entry is in Redis at least as long as in its window, however little the key had left before it came, and no longer
// than a second more.
func TestKeysOutliveTheirEntries(t *testing.T) {
	rdb := start(t)
	c := newClock(rdb)
	logs := newStore(c)
	id := uint64(0)
	for i, key := range keysOf(t, len(forms), "forms") {
		form := forms[i]
		take := form.take
		take.Key, take.Plan, take.Cost = key, kept(take.Plan, 100), max(take.Cost, 1)
		ask := func(what string) {
			t.Helper()
			id++
			take.ID = id
			least, most := lasts(t, rdb, stored(key), func() {
				if a, err := coretest.Take(t.Context(), logs, take); err != nil || !a.Allowed {
					t.Fatalf("%s, %s: %+v, %v", form.name, what, a, err)
				}
			})
			if most < formsKeep || least > formsKeep+time.Second {
				t.Errorf("%s, %s: the key stays for %v, its youngest entry for %v", form.name, what, most, formsKeep)
			}
		}
		ask("the first")
		for _, left := range []time.Duration{time.Second, formsKeep - 50*time.Millisecond} {
			if ok := rdb.PExpire(t.Context(), stored(key), clockMore+left).Val(); !ok {
				t.Fatalf("%s: no key %s", form.name, stored(key))
			}
			c.Advance(time.Second)
			ask(fmt.Sprint("with ", left, " left"))
		}
		c.Advance(formsKeep - 2*time.Second) // what came first has left
		rdb.PExpire(t.Context(), stored(key), clockMore+2*time.Second)
		ask("when entries have left")
	}
}

// lasts is how long at least, and at most, the key stays from when act has asked the server, by the server's own clock.
func lasts(t *testing.T, rdb *redis.Client, key string, act func()) (least, most time.Duration) {
	t.Helper()
	before, err := rdb.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	act()
	end := expiresAt(t, rdb, key)
	after, err := rdb.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return end.Sub(after) - clockMore, end.Sub(before.Truncate(time.Millisecond)) - clockMore
}

// expiresAt returns when a key expires, by the server's clock: what PEXPIRETIME tells, which Redis 6 has not got.
func expiresAt(t *testing.T, rdb *redis.Client, key string) time.Time {
	t.Helper()
	const script = `
		local before, left, after = redis.call('TIME'), redis.call('PTTL', KEYS[1]), redis.call('TIME')
		return {before[1] * 1000 + math.floor(before[2] / 1000), left, after[1] * 1000 + math.floor(after[2] / 1000)}`
	for {
		told, err := rdb.Eval(t.Context(), script, []string{key}).Int64Slice()
		if err != nil {
			t.Fatal(err)
		}
		if told[0] == told[2] { // otherwise it is unknown from which millisecond on the key has this TTL
			return time.UnixMilli(told[0] + told[1])
		}
	}
}

// stored is a key as it is in Redis.
func stored(key store.Key) string { return "sash:" + key.String() }

// So is what was merged.
func TestKeysOutliveMergedEntries(t *testing.T) {
	rdb := start(t)
	logs := newStore(newClock(rdb))
	for i, key := range keysOf(t, 2, "merged") {
		for n := range 2 {
			m := store.MergeRequest{Key: key, Keep: formsKeep, Varies: i == 1}
			m.Entries = []store.Entry{{ID: uint64(n + 1), Cost: 2}}
			least, most := lasts(t, rdb, stored(key), func() {
				if err := full(logs).Merge(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			})
			if most < formsKeep || least > formsKeep+time.Second {
				t.Errorf("varies %v: the key stays for %v, its entries for %v", i == 1, most, formsKeep)
			}
			rdb.PExpire(t.Context(), stored(key), clockMore+time.Second)
		}
	}
}

// What has left is removed by the next take that is admitted, so that a log in steady use does not grow.
func TestWhatHasLeftIsRemoved(t *testing.T) {
	rdb := start(t)
	c := newClock(rdb)
	logs := newStore(c)
	id := uint64(0)
	for i, key := range keysOf(t, len(forms), "forms") {
		take := forms[i].take
		take.Key, take.Plan, take.Cost = key, kept(take.Plan, 100), max(take.Cost, 1)
		for range 50 {
			id++
			take.ID = id
			if a, err := coretest.Take(t.Context(), logs, take); err != nil || !a.Allowed {
				t.Fatalf("%s: %+v, %v", forms[i].name, a, err)
			}
			c.Advance(formsKeep/3 + time.Microsecond)
		}
		most := 3 // entries
		switch {
		case take.Cost > 1:
			most += 8 + 1 // summaries, and perhaps a block
		case take.Plan.Varies:
			most++
		}
		entries := rdb.ZCount(t.Context(), stored(key), "1", "+inf").Val()
		if n := rdb.ZCard(t.Context(), stored(key)).Val(); entries != 3 || int(n) > most {
			t.Errorf("%s: %d entries and %d members in Redis, of which 3 are in the window", forms[i].name, entries, n)
		}
	}
}

// A take that is sent again later, as by a client that has waited for its reply, stays at the instant when it was
// recorded.
func TestLateCopiesDoNotMoveTheirTake(t *testing.T) {
	c := newClock(start(t))
	logs := newStore(c)
	for i, key := range keysOf(t, len(forms), "forms") {
		take := forms[i].take
		if take.Mode == store.ModeChargeDenied {
			continue
		}
		take.Key, take.Plan, take.Cost = key, kept(take.Plan, 100), max(take.Cost, 1)
		for n, copies := range []int{0, 1, 0} {
			take.ID = uint64(n + 1)
			for range 1 + copies {
				if a, err := coretest.Take(t.Context(), logs, take); err != nil || !a.Allowed {
					t.Fatalf("%s: %+v, %v", forms[i].name, a, err)
				}
				c.Advance(time.Millisecond)
			}
			c.Advance(time.Duration(1-copies) * time.Millisecond)
		}
		entries, err := full(logs).Log(t.Context(), key, formsKeep)
		if err != nil || len(entries) != 3 {
			t.Fatalf("%s: %v, %v; want 3 entries", forms[i].name, entries, err)
		}
		for n, e := range entries {
			if since := e.At.Sub(entries[0].At); since != time.Duration(n)*2*time.Millisecond || e.Cost != take.Cost {
				t.Errorf("%s: entry %d is of %v after the first, and costs %d", forms[i].name, n, since, e.Cost)
			}
		}
	}
}

// A copy of a take that arrives after the take has left the window finds the entries of others.
func TestCopiesOfWhatHasLeft(t *testing.T) {
	c := newClock(start(t))
	logs := newStore(c)
	key := keysOf(t, 1, "copies")[0]
	for _, take := range []struct {
		id    uint64
		after time.Duration
		used  int
	}{{1, 0, 0}, {2, formsKeep / 2, 1}, {1, formsKeep / 2, 1}} {
		c.Advance(take.after)
		// The log is kept for longer, so that the first entry is still there.
		plan := planOf(core.Limits{hundred}, store.Plan{Keep: 2 * formsKeep})
		ask := store.Take{Key: key, Plan: plan, Cost: 1, ID: take.id}
		if a, err := coretest.Take(t.Context(), logs, ask); err != nil || !a.Allowed || a.State[0].Used != take.used {
			t.Errorf("take %d, %v later: %+v, %v; want %d used", take.id, take.after, a, err, take.used)
		}
	}
}

// Limiters of one log choose windows by the request. A limiter that has seen only short windows removes no entry that
// another still needs, whichever of them comes first.
func TestShortWindowsTakeNothingFromLongOnes(t *testing.T) {
	c := newClock(start(t))
	for i, key := range keysOf(t, 2, "plans") {
		logs, id := newStore(c), uint64(0)
		take := func(limit core.Limit) store.Answer {
			t.Helper()
			id++
			plan := planOf(core.Limits{limit}, store.Plan{Keep: limit.Window, Varies: true})
			ask := store.Take{Key: key, Plan: plan, Cost: 1, ID: id}
			a, err := coretest.Take(t.Context(), logs, ask)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		if i == 1 {
			take(core.PerSecond(100))
		}
		for range 3 {
			take(core.PerHour(100))
			c.Advance(time.Minute)
			take(core.PerSecond(100))
		}
		c.Advance(time.Minute)
		if used := take(core.PerHour(100)).State[0].Used; used != 6+i {
			t.Errorf("%d units in the hour, want %d", used, 6+i)
		}
	}
}

// If a key's expiry cannot be set, the log keeps its entries.
func TestRefusedExpiryForgetsNothing(t *testing.T) {
	rdb := start(t)
	name := core.WithName("refused")
	l := newLimiter(t, core.PerHour(9), redisstore.New(rdb), name)
	for range 3 {
		if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}
	err := rdb.Do(t.Context(), "ACL", "SETUSER", "u", "on", "nopass", "~sash:*", "+@all", "-pexpire").Err()
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: rdb.Options().Addr, Username: "u", Password: "any"})
	defer client.Close()
	refused := newLimiter(t, core.PerHour(9), redisstore.New(client), name)
	if d, err := refused.AllowN(t.Context(), "k", 2); err == nil {
		t.Fatalf("%+v without PEXPIRE; want an error", d)
	}
	if d, err := l.Peek(t.Context(), "k"); err != nil || d.Used < 3 {
		t.Errorf("%d units used, %v; want the first 3 at least", d.Used, err)
	}
}

// Entries that are merged again later, in which case their age is not known so exactly, stay where they are.
func TestMergedAgainDoNotMove(t *testing.T) {
	c := newClock(start(t))
	logs := newStore(c)
	key := keysOf(t, 1, "merged")[0]
	m := store.MergeRequest{Key: key, Keep: formsKeep}
	m.Entries = []store.Entry{{ID: 1, Age: time.Second, Cost: 3}, {ID: 2, Cost: 1}}
	for range 3 {
		if err := full(logs).Merge(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		c.Advance(time.Millisecond)
	}
	entries, err := full(logs).Log(t.Context(), key, formsKeep)
	if want := []sinceEntry{{0, 3}, {time.Second, 1}}; err != nil || !slices.Equal(sinceFirst(entries), want) {
		t.Errorf("%v, %v; want three units, and one a second later", entries, err)
	}
	c.Advance(formsKeep - time.Second - 3*time.Millisecond)
	if entries, err := full(logs).Log(t.Context(), key, formsKeep); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v; want the second only", entries, err)
	}
}

// What is as old as its window has left, and is not merged. A microsecond younger, it is.
func TestMergeOfWhatIsLeaving(t *testing.T) {
	for _, newStore := range []func(processor) core.Store{newStore, newStreams} {
		mergeOfWhatIsLeaving(t, listing(newStore(newClock(start(t)))))
	}
}

func mergeOfWhatIsLeaving(t *testing.T, logs listingStore) {
	key := keysOf(t, 1, "merged")[0]
	m := store.MergeRequest{Key: key, Keep: formsKeep}
	for i, age := range []time.Duration{formsKeep + time.Microsecond, formsKeep, formsKeep - time.Microsecond} {
		m.Entries = append(m.Entries, store.Entry{ID: uint64(i + 1), Age: age, Cost: 1})
	}
	if err := logs.Merge(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	// Asked about twice the window, the log tells what it has.
	if entries, err := logs.Log(t.Context(), key, 2*formsKeep); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v; want the youngest only", entries, err)
	}
}

// Entries of an outage do not shorten the life of a log, as where a process has not known a longer window then.
func TestMergedEntriesShortenNoLife(t *testing.T) {
	rdb := start(t)
	c := newClock(rdb)
	for name, logs := range map[string]core.Store{"set": newStore(c), "stream": newStreams(c)} {
		key := keysOf(t, 1, name)[0]
		take := store.Take{Key: key, Plan: planOf(core.Limits{core.PerHour(9)}, store.Plan{}), Cost: 1, ID: 1}
		if a, err := coretest.Take(t.Context(), logs, take); err != nil || !a.Allowed {
			t.Fatal(a, err)
		}
		text := stored(key)
		if name == "stream" {
			text = storedStream(key)
		}
		m := store.MergeRequest{Key: key, Keep: formsKeep, Entries: []store.Entry{{ID: 2, Cost: 1}}}
		_, most := lasts(t, rdb, text, func() {
			if err := logs.(store.Merger).Merge(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		})
		if most < time.Hour {
			t.Errorf("%s: the key stays for %v, an entry for an hour", name, most)
		}
	}
}

// A log that is kept for longer than the merged entries stays so, and accepts entries that are older than that.
func TestMergeIntoALogOfLongerWindows(t *testing.T) {
	rdb := start(t)
	logs := newStore(newClock(rdb))
	key := keysOf(t, 1, "merged")[0]
	plan := planOf(core.Limits{core.PerHour(9)}, store.Plan{Keep: time.Hour, Varies: true})
	take := store.Take{Key: key, Plan: plan, Cost: 1, ID: 1}
	if a, err := coretest.Take(t.Context(), logs, take); err != nil || !a.Allowed {
		t.Fatal(a, err)
	}
	m := store.MergeRequest{
		Key: key, Keep: formsKeep, Varies: true, Entries: []store.Entry{{ID: 2, Age: 3 * formsKeep, Cost: 1}},
	}
	_, most := lasts(t, rdb, stored(key), func() {
		if err := full(logs).Merge(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	})
	if most < time.Hour {
		t.Errorf("the key stays for %v, an entry for an hour", most)
	}
	if entries, err := full(logs).Log(t.Context(), key, time.Hour); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v; want both entries", entries, err)
	}
}

// A denial that counts is in the log under another name; what an outage has recorded of it is the same take.
func TestCountedDenialsAreMergedOnce(t *testing.T) {
	for _, newStore := range []func(processor) core.Store{newStore, newStreams} {
		countedDenials(t, newStore(newClock(start(t))))
	}
}

func countedDenials(t *testing.T, logs core.Store) {
	key := keysOf(t, 1, "merged")[0]
	limits := core.Limits{{Quota: 1, Window: formsKeep}}
	for id := range uint64(2) {
		take := store.Take{Key: key, Plan: planOf(limits, store.Plan{Keep: formsKeep, Bound: 10}), Cost: 1, ID: id + 1}
		take.Mode = store.ModeChargeDenied
		if a, err := coretest.Take(t.Context(), logs, take); err != nil || a.Allowed != (id == 0) {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	m := store.MergeRequest{Key: key, Keep: formsKeep}
	for id := range uint64(3) {
		m.Entries = append(m.Entries, store.Entry{ID: id + 1, Cost: 1})
	}
	if err := listing(logs).Merge(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	entries, err := listing(logs).Log(t.Context(), key, formsKeep)
	if want := []sinceEntry{{0, 1}, {0, 1}, {0, 1}}; err != nil || !slices.Equal(sinceFirst(entries), want) {
		t.Errorf("%v, %v; want three entries of one unit", entries, err)
	}
}

// Where everything has left the log before, a batch removes first and looks then, which takes fewer commands: an
// admission has as many as for a log that is not there, and one more.
func TestLogsThatEmptiedTogether(t *testing.T) {
	rdb := start(t)
	c := newClock(rdb)
	logs := newStore(c)
	keys := keysOf(t, 8, "emptied")
	id := uint64(0)
	together := func() {
		t.Helper()
		batch := make([]store.Take, len(keys))
		for i, key := range keys {
			id++
			batch[i] = store.Take{Key: key, Plan: kept(forms[0].take.Plan, 0), Cost: 1, ID: id}
		}
		answers, err := redisstore.TakeTogether(t.Context(), logs, true, batch)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range answers {
			if want := (store.State{Reset: formsKeep}); !a.Allowed || a.State[0] != want {
				t.Errorf("log %d: %+v, want %+v", i, a, want)
			}
		}
	}
	together()
	c.Advance(formsKeep)
	before := calls(t, rdb, "zrange")
	together()
	if n := calls(t, rdb, "zrange") - before; n != 1 {
		t.Errorf("%d times the oldest entry was looked at, want once: for the first log", n)
	}
}

// calls is how often the server has executed a command.
func calls(t *testing.T, rdb *redis.Client, command string) (n int) {
	t.Helper()
	info, err := rdb.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "cmdstat_"+command+":calls=")
	fmt.Sscanf(rest, "%d,", &n)
	return n
}

// A take may be settled to more units than a script can hand over at once, and back.
func TestSettleOfManyUnits(t *testing.T) {
	logs := newStore(newClock(start(t)))
	key := keysOf(t, 1, "many")[0]
	plan := planOf(core.Limits{core.PerHour(100_000)}, store.Plan{Keep: time.Hour})
	take := store.Take{Key: key, Plan: plan, Cost: 2, ID: 1}
	if a, err := coretest.Take(t.Context(), logs, take); err != nil || !a.Allowed {
		t.Fatal(a, err)
	}
	for _, cost := range []int{3001, 10_000, 4999, 1000, 3000, 1, core.MaxQuota, 0} {
		if err := full(logs).Settle(t.Context(), store.Settlement{Key: key, ID: 1, Cost: cost}); err != nil {
			t.Fatal(err)
		}
		peek := take
		peek.ID, peek.Mode = 2, store.ModePeek
		if a, err := coretest.Take(t.Context(), logs, peek); err != nil || a.State[0].Used != cost {
			t.Errorf("settled to %d units, but %d are used, %v", cost, a.State[0].Used, err)
		}
	}
}

// A denial that was counted stays one when it is sent again, although there is room by now.
func TestCountedDenialSentAgain(t *testing.T) {
	key, logs := keysOf(t, 1, "again")[0], newStore(newClock(start(t)))
	take := func(id uint64, allowed bool) {
		t.Helper()
		plan := planOf(core.Limits{{Quota: 2, Window: formsKeep}}, store.Plan{Keep: formsKeep, Bound: 10})
		take := store.Take{Key: key, Plan: plan, Cost: 1, ID: id, Mode: store.ModeChargeDenied}
		if a, err := coretest.Take(t.Context(), logs, take); err != nil || a.Allowed != allowed {
			t.Errorf("%+v, %v; want allowed %v", a, err, allowed)
		}
	}
	take(1, true)
	take(2, true)
	take(3, false)
	for id := range uint64(2) {
		if err := full(logs).Settle(t.Context(), store.Settlement{Key: key, ID: id + 1}); err != nil {
			t.Error(err)
		}
	}
	take(3, false)
	take(4, true)
}
