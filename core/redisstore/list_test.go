package redisstore_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// between is a client that calls a function with each of the replies that a test is about.
type between struct {
	processor

	f func(reply []int64)
}

func (b *between) Process(ctx context.Context, cmd redis.Cmder) error {
	err := b.processor.Process(ctx, cmd)
	if f := b.f; err == nil && f != nil {
		b.f = nil // not for what f sends
		f(cmd.(*redis.IntSliceCmd).Val())
		b.f = f
	}
	return err
}

// A long log is listed in parts, so that no script keeps the server busy for long. What leaves meanwhile may be
// missing, and what comes is not listed; nothing else is missing, and nothing is there twice.
func TestLogIsListedInParts(t *testing.T) {
	const entries, most, hour = 3_000, 600, time.Hour
	for name, streams := range map[string]bool{"sorted set": false, "stream": true} {
		t.Run(name, func(t *testing.T) {
			c := &between{processor: start(t)}
			s := newStore(c)
			if streams {
				s = newStreams(c)
			}
			key, list := store.NewKey("parts", "k"), s.(listingStore)
			merge := store.MergeRequest{Key: key, Keep: hour}
			for i := range entries {
				e := store.Entry{ID: uint64(i + 1), Cost: 1, Age: time.Duration(entries-i/20) * 100 * time.Millisecond}
				if !streams && rand.IntN(2) == 0 {
					e.Cost += i
				}
				merge.Entries = append(merge.Entries, e)
			}
			if err := list.Merge(t.Context(), merge); err != nil {
				t.Fatal(err)
			}
			parts, gone, listed := 0, 0, func() []core.Entry {
				t.Helper()
				entries, err := list.Log(t.Context(), key, hour)
				if err != nil {
					t.Fatal(err)
				}
				return entries
			}
			c.f = func(reply []int64) {
				if parts++; len(reply) > 1+2*most {
					t.Errorf("a part has %d numbers, want at most %d", len(reply), 1+2*most)
				}
			}
			all := listed()
			for i, e := range all {
				if len(all) != entries || e.Cost != merge.Entries[i].Cost || i > 0 && e.At.Before(all[i-1].At) {
					t.Fatalf("entry %d of %d: %v; want cost %d", i, len(all), e, merge.Entries[i].Cost)
				}
			}
			if parts < entries/most {
				t.Errorf("listed in %d parts", parts)
			}
			c.f = func([]int64) {
				gone++
				settled := store.Settlement{Key: key, ID: uint64(rand.IntN(entries) + 1)}
				added := store.MergeRequest{Key: key, Keep: hour, Entries: []store.Entry{{ID: rand.Uint64(), Cost: 1}}}
				if err := cmp.Or(list.Settle(t.Context(), settled), list.Merge(t.Context(), added)); err != nil {
					t.Error(err)
				}
			}
			now, missing := listed(), 0
			c.f = nil
			for _, e := range all {
				if len(now) > 0 && now[0] == e {
					now = now[1:]
				} else {
					missing++
				}
			}
			if len(now) > 0 || missing > gone {
				t.Errorf("%d entries are missing, %d have gone; %d are there that were not: %v", missing, gone,
					len(now), now)
			}
		})
	}
}
