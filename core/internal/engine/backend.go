package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/internal/permits"
	"github.com/sashlimit/sash/core/store"
)

// backend is where the logs are: in memory, or behind the guard of a store. It is the only one that knows which.
type backend struct {
	logs

	memory    *memory.Store
	guard     *guard.Guard // unless memory is set
	store     store.Store  // of the guard
	permits   *permits.Set
	overrider store.Overrider // or nil: the store keeps no overrides

	isFar bool // the store is outside the process: it needs to be told how old takes are
	lists bool // the store can list a log
	holds bool // the store can hold requests in flight
}

// logs are what a guard and memory have in common, besides takes, which an interface would move to the heap.
type logs interface {
	// Answers reports whether the store is asked; if not, there is an outage.
	Answers() bool
	Open() bool
	// Within returns a context for several calls about one decision, which end within one timeout together.
	Within(ctx context.Context) (context.Context, context.CancelFunc)

	Settle(ctx context.Context, s store.Settlement, degraded bool) error
	// Add records a take of a sliding log as of some time ago, or changes its cost.
	Add(ctx context.Context, t *store.Take, age time.Duration) error
	Reset(ctx context.Context, key store.Key, limits []*store.Limit) error
	Log(ctx context.Context, key store.Key, l *store.Limit) ([]store.Entry, error)
	Close() error
}

func newBackend(c *Config, freed func(*store.Key)) backend {
	if m := (inMemory{c.Memory}); c.Memory != nil {
		return backend{
			logs: m, memory: c.Memory, permits: permits.New(m, freed), overrider: c.Overrider, lists: true, holds: true,
		}
	}
	c.Guard.Policy, c.Guard.Freed = c.Policy, freed
	g := guard.New(c.Guard)
	b := backend{logs: g, guard: g, store: c.Guard.Store, permits: g.Permits, isFar: true}
	_, b.lists = b.store.(store.Lister)
	_, renews := b.store.(store.Renewer)
	_, settles := b.store.(store.Settler)
	b.holds = renews && settles
	if _, keeps := b.store.(store.Overrider); keeps {
		b.overrider = g
	}
	return b
}

func (b *backend) name() string { return fmt.Sprintf("%T", b.store) }

// validate returns an error if the store can never decide about limits.
func (b *backend) validate(limits ...*store.Limit) error {
	if b.memory != nil {
		return nil
	}
	return b.store.Validate(limits...)
}

// take decides about takes. If the source is event.Local, the failure policy has decided because of the error.
func (b *backend) take(ctx context.Context, takes []store.Take, answers []store.Answer) (event.Source, error) {
	if b.memory != nil {
		b.memory.Take(takes, answers)
		return event.Memory, nil
	}
	return b.guard.Take(ctx, takes, answers)
}

// inMemory are logs in this process, which always answer, and their permits.
type inMemory struct{ *memory.Store }

func (inMemory) Answers() bool { return true }
func (inMemory) Open() bool    { return false }
func (inMemory) Close() error  { return nil }

func (inMemory) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return ctx, func() {}
}

func (m inMemory) Settle(_ context.Context, s store.Settlement, _ bool) error {
	m.Store.Settle(&s)
	return nil
}

func (m inMemory) Add(_ context.Context, t *store.Take, age time.Duration) error {
	m.Merge(&store.MergeRequest{Key: t.Key, Limit: t.Limit, Entries: []store.Entry{{ID: t.ID, Cost: t.Cost, Age: age}}})
	return nil
}

func (m inMemory) Reset(_ context.Context, key store.Key, limits []*store.Limit) error {
	m.Store.Reset(&key, limits, 0)
	return nil
}

func (m inMemory) Log(_ context.Context, key store.Key, l *store.Limit) ([]store.Entry, error) {
	return m.Store.Log(&key, l), nil
}

func (m inMemory) Renew(_ context.Context, r *store.Renewal) error {
	m.Store.Renew(r)
	return nil
}

func (m inMemory) Release(_ context.Context, p *permits.Permit) error {
	m.Store.Settle(&store.Settlement{Key: p.Key, Limit: p.Limit, ID: p.ID, Was: 1})
	return nil
}
