package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
)

// repeated executes every command twice, as a client does that has lost a reply, and goes on with the second reply.
// What the two admit must be the same for every take of the command.
type repeated struct {
	processor

	t    *testing.T
	size int // numbers of each answer
}

func (c repeated) Process(ctx context.Context, cmd redis.Cmder) error {
	if err := c.processor.Process(ctx, cmd); err != nil {
		return err
	}
	first := slices.Clone(cmd.(*redis.IntSliceCmd).Val())
	if err := c.processor.Process(ctx, cmd); err != nil {
		return err
	}
	second := cmd.(*redis.IntSliceCmd).Val()
	for i := 0; i < max(len(first), len(second)); {
		if len(first) != len(second) || first[i] != second[i] {
			c.t.Errorf("number %d: admitted when a command is sent again:\n%v\n%v", i, first, second)
			break
		}
		if first[i] == askedAgain {
			i++
		} else {
			i += c.size
		}
	}
	return nil
}

// Takes that count although they are denied may go together with others of their key: each is decided as it would be
// by itself, also when the command is sent twice.
func TestRepeatedKeysCountDenied(t *testing.T) {
	rdb := start(t)
	limits := []core.Limits{
		{{Quota: 1, Window: time.Second}},
		{{Quota: 7, Window: time.Second}},
		{{Quota: 150, Window: time.Second}},
		{{Quota: 5, Window: time.Second}, {Quota: 20, Window: 9 * time.Second}},
	}
	for i, limits := range limits {
		for _, bound := range []int{0, 30} {
			for _, twice := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v, bound %d, twice %v", limits, bound, twice), func(t *testing.T) {
					c := newClock(rdb)
					if twice {
						c.processor = repeated{rdb, t, 2 + 2*len(limits)}
					}
					r := rand.New(rand.NewPCG(17, uint64(i)))
					run := repeatedKeys{t: t, c: c, r: r, limits: limits, bound: bound, numbers: !twice}
					run.keys = keysOf(t, 3, fmt.Sprintf("together.%d.%d.%v", i, bound, twice))
					run.alone = keysOf(t, 3, fmt.Sprintf("alone.%d.%d.%v", i, bound, twice))
					run.all()
				})
			}
		}
	}
}

type repeatedKeys struct {
	t           *testing.T
	c           clock
	r           *rand.Rand
	limits      core.Limits
	bound       int
	numbers     bool // compare these as well
	keys, alone []store.Key
	id          uint64
}

func (run *repeatedKeys) all() {
	together, alone := newStore(run.c), newStore(run.c)
	keep, several := run.limits[len(run.limits)-1].Window, 0
	for range testlen.Of(6, 50) {
		var waiting []store.Take
		var of []int
		for range 1 + run.r.IntN(40) {
			run.id++
			k, cost := run.r.IntN(len(run.keys)), 1
			if run.r.IntN(4) == 0 {
				cost = 1 + run.r.IntN(run.limits[0].Quota+1)
			}
			of = append(of, k)
			waiting = append(waiting, store.Take{
				Key: run.keys[k], Plan: planOf(run.limits, store.Plan{Keep: keep, Bound: run.bound}),
				Cost: cost, ID: run.id, Mode: store.ModeChargeDenied,
			})
		}
		for _, batch := range redisstore.Batches(run.t.Context(), together, waiting) {
			several += run.compare(together, alone, waiting, of, batch)
		}
		run.c.Advance(time.Duration(run.r.IntN(600_000)) * time.Microsecond)
	}
	if several == 0 && max(run.bound, run.limits[0].Quota) > 1 {
		run.t.Error("no batch had a key twice: the test proves nothing")
	}
}

// compare decides one batch both ways, and returns how many of its takes are of a key that it has already.
func (run *repeatedKeys) compare(together, alone core.Store, waiting []store.Take, of, batch []int) (several int) {
	var takes []store.Take
	seen := map[int]bool{}
	for _, i := range batch {
		takes = append(takes, waiting[i])
		if seen[of[i]] {
			several++
		}
		seen[of[i]] = true
	}
	got, err := redisstore.TakeTogether(run.t.Context(), together, true, takes)
	if err != nil {
		run.t.Fatal(err)
	}
	for n, i := range batch {
		single := waiting[i]
		single.Key = run.alone[of[i]]
		want, err := coretest.Take(run.t.Context(), alone, single)
		if err != nil {
			run.t.Fatal(err)
		}
		if got[n].Allowed != want.Allowed || run.numbers && got[n] != want {
			run.t.Fatalf("take %d of %d, cost %d:\ngot  %+v\nwant %+v", n, len(batch), single.Cost, got[n], want)
		}
	}
	run.c.Advance(time.Microsecond) // two scripts do not run in the same microsecond
	return several
}
