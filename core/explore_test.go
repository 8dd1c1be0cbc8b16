package core_test

import (
	"context"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// explore runs many small worlds, and all of them if SASH_EXPLORE is "all".
func explore(t *testing.T, makeStore func() core.Store) {
	c := coretest.ExploreConfig{
		New:    func(*testing.T) (core.Store, func(time.Duration)) { return makeStore(), time.Sleep },
		Run:    inBubble,
		Worlds: testlen.Of(5000, 100_000),
	}
	if raceEnabled { // which makes it ten times slower
		c.Worlds = min(c.Worlds, 10_000)
	}
	if os.Getenv("SASH_EXPLORE") == "all" {
		c.Worlds = 0
	}
	coretest.Explore(t, c)
}

// With IDs of its callers, as after Merge, a log has a ledger.
func TestExploreMemoryStore(t *testing.T) {
	explore(t, func() core.Store { return core.NewMemoryStore() })
}

// A log that assigns the IDs itself, as for limiters, has no ledger unless a cost or a correction needs one.
func TestExploreMemoryStoreOfLimiters(t *testing.T) {
	explore(t, func() core.Store { return &ownIDs{logs: memory.New(100_000), ids: make(map[string]uint64)} })
}

// ownIDs is a store whose logs assign the IDs of takes. It remembers which those are.
type ownIDs struct {
	logs *memory.Store

	mu  sync.Mutex
	ids map[string]uint64 // by log and the caller's ID
}

// id returns where the ID of a take is remembered.
func (*ownIDs) id(key *store.Key, id uint64) string {
	return key.Text + " " + strconv.FormatUint(id, 36)
}

func (*ownIDs) Validate(...*store.Plan) error { return nil }

func (s *ownIDs) Take(_ context.Context, takes []store.Take, answers []store.Answer) error {
	id := takes[0].ID
	for i := range takes {
		takes[i].ID = 0
	}
	s.logs.Take(takes, answers)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range takes {
		s.ids[s.id(&takes[i].Key, id)] = takes[i].ID
	}
	return nil
}

func (s *ownIDs) Settle(_ context.Context, t store.Settlement) error {
	s.mu.Lock()
	t.ID = s.ids[s.id(&t.Key, t.ID)]
	s.mu.Unlock()
	s.logs.Settle(&t)
	return nil
}

func (s *ownIDs) Log(_ context.Context, key store.Key, window time.Duration) ([]store.Entry, error) {
	return s.logs.Log(&key, window), nil
}

func (s *ownIDs) Reset(_ context.Context, key store.Key) error {
	s.logs.Reset(&key)
	return nil
}
