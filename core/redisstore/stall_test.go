package redisstore_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// stat is one number of what a server tells about itself.
func stat(t *testing.T, rdb *redis.Client, section, name string) int {
	t.Helper()
	_, rest, ok := strings.Cut(rdb.Info(t.Context(), section).Val(), name)
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	n, err := strconv.Atoi(rest[:max(end, 0)])
	if !ok || err != nil {
		t.Fatalf("no %s in INFO %s: %v", name, section, err)
	}
	return n
}

// fill adds entries of one unit to a log with a window of an hour, as of now.
func fill(t *testing.T, logs core.Store, key store.Key, entries int) {
	t.Helper()
	m := store.MergeRequest{Key: key, Keep: time.Hour}
	for i := range entries {
		m.Entries = append(m.Entries, store.Entry{ID: 1<<50 + uint64(i), Cost: 1})
	}
	if err := full(logs).Merge(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// A take under another window changes few entries of a log, however many there are, so that other takes do not wait
// for it. Redis counts changes; the time that they took is in the test's log.
func TestScriptsChangeFewEntriesOfLongLogs(t *testing.T) {
	testlen.SkipRace(t)
	const entries, most = 90_000, 2_000
	rdb := start(t)
	c := clock{rdb, redistest.NewClock()} // sends EVAL, whose statistics are read below
	name := core.WithName("plan")
	varied := func(limit core.Limit) *core.Limiter {
		policy := core.LimitBy(func(context.Context) core.Limits { return core.Limits{limit} })
		return newLimiter(t, policy, newStore(c), name)
	}
	hour := newLimiter(t, core.PerHour(100_000), newStore(c), name)
	day := varied(core.Limit{Quota: 100_000, Window: 24 * time.Hour})
	filled := func() {
		t.Helper()
		rdb.FlushAll(t.Context())
		fill(t, newStore(c), store.NewKey("plan", "k"), entries)
	}
	allow := func(desc string, l *core.Limiter, used, most int) {
		t.Helper()
		rdb.ConfigResetStat(t.Context())
		before := stat(t, rdb, "persistence", "rdb_changes_since_last_save:")
		d, err := l.Allow(t.Context(), "k")
		changes := stat(t, rdb, "persistence", "rdb_changes_since_last_save:") - before
		if err != nil || !d.Allowed || d.Used != used || changes > most {
			t.Errorf("%s: allowed %v, used %d, %d changes, %v; want %d used, at most %d changes",
				desc, d.Allowed, d.Used, changes, err, used, most)
		}
		calls, micros := 0, 0 // two calls where the log has a mark that the first script does not know
		_, rest, _ := strings.Cut(rdb.Info(t.Context(), "commandstats").Val(), "cmdstat_eval:")
		if _, err := fmt.Sscanf(rest, "calls=%d,usec=%d", &calls, &micros); err != nil || calls > 2 {
			t.Errorf("%s: %d calls, %v", desc, calls, err)
		}
		t.Logf("%s: %d changes in %d us", desc, changes, micros)
	}

	filled()
	allow("the first take of another window", day, entries, 10)
	allow("the next one", day, entries+1, 10)
	allow("a take of the old window", hour, entries+2, 10)
	c.Advance(2 * time.Hour) // of the day's window, but not of the hour's
	allow("long afterwards", day, entries+3, 10)
	allow("in the hour's window", hour, 1, 10)
	c.Advance(22*time.Hour + time.Minute)
	for used := 2; used < 40; used++ {
		allow(fmt.Sprint("when they have left, ", used), day, used, 2*most+10)
	}

	filled()
	c.Advance(-2 * time.Hour)
	allow("when the clock has stepped back", hour, entries, entries+10) // all that would stay too long
	allow("when it is repaired", hour, entries+1, 10)
	c.Advance(time.Hour + store.LongestLease)
	d, err := hour.Peek(t.Context(), "k")
	if err != nil || d.Used > 0 {
		t.Errorf("an hour after the clock stepped back %d are used, %v", d.Used, err)
	}
}
