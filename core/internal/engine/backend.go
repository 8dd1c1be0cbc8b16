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
	memory  *memory.Store
	guard   *guard.Guard // unless memory is set
	store   store.Store  // of the guard
	permits *permits.Set

	lease time.Duration // units may be taken ahead for so long, or 0
	isFar bool          // the store is outside the process: it needs to be told how old takes are
}

func newBackend(c *Config, freed func(*store.Key)) backend {
	if m := c.Memory; m != nil {
		return backend{memory: m, permits: permits.New(memoryPermits{m}, freed)}
	}
	c.Guard.Policy, c.Guard.Freed = c.Policy, freed
	g := guard.New(c.Guard)
	return backend{guard: g, store: c.Guard.Store, permits: g.Permits, lease: c.Guard.Lease, isFar: true}
}

// memoryPermits are permits in this process's memory.
type memoryPermits struct{ logs *memory.Store }

func (m memoryPermits) Renew(_ context.Context, r *store.Renewal) error {
	m.logs.Renew(r)
	return nil
}

func (m memoryPermits) Release(_ context.Context, p *permits.Permit) error {
	m.logs.Settle(&store.Settlement{Key: p.Key, Limit: p.Limit, ID: p.ID, Was: 1})
	return nil
}

func (b *backend) name() string { return fmt.Sprintf("%T", b.store) }

// validate returns an error if the store can never decide about limits.
func (b *backend) validate(limits ...*store.Limit) error {
	if b.memory != nil {
		return nil
	}
	return b.store.Validate(limits...)
}

// holds reports whether the store can hold requests in flight.
func (b *backend) holds() bool {
	if b.memory != nil {
		return true
	}
	_, renews := b.store.(store.Renewer)
	_, settles := b.store.(store.Settler)
	return renews && settles
}

func (b *backend) isOpen() bool { return b.memory == nil && b.guard.Open() }

// answers reports whether the store is asked; if not, there is an outage.
func (b *backend) answers() bool { return b.memory != nil || b.guard.Answers() }

// within returns a context for several calls about one decision, which end within one timeout together.
func (b *backend) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if b.memory != nil {
		return ctx, func() {}
	}
	return b.guard.Within(ctx)
}

// take decides about takes. If the source is event.Local, the failure policy has decided because of the error.
func (b *backend) take(ctx context.Context, takes []store.Take, answers []store.Answer) (event.Source, error) {
	if b.memory != nil {
		b.memory.Take(takes, answers)
		return event.Memory, nil
	}
	return b.guard.Take(ctx, takes, answers)
}

// takeLeased is take for units that may be taken ahead.
func (b *backend) takeLeased(
	ctx context.Context, takes []store.Take, answers []store.Answer,
) (guard.Use, event.Source, error) {
	return b.guard.TakeLeased(ctx, takes, answers)
}

func (b *backend) settle(ctx context.Context, s *store.Settlement, degraded bool) error {
	if b.memory != nil {
		b.memory.Settle(s)
		return nil
	}
	return b.guard.Settle(ctx, *s, degraded)
}

// settleLeased changes the cost of a unit that was spent of a lease, in all its logs.
func (b *backend) settleLeased(ctx context.Context, u guard.Use, id uint64, cost int) error {
	return b.guard.SettleLeased(ctx, u, id, cost)
}

// giveBack settles to 0, later if the store does not answer.
func (b *backend) giveBack(ctx context.Context, s *store.Settlement, degraded bool) error {
	if b.memory != nil {
		return b.settle(ctx, s, degraded)
	}
	return b.guard.GiveBack(ctx, *s, degraded)
}

// add records a take of a sliding log as of some time ago, or changes its cost.
func (b *backend) add(ctx context.Context, t *store.Take, age time.Duration) error {
	if b.memory != nil {
		b.memory.Merge(&store.MergeRequest{
			Key: t.Key, Limit: t.Limit, Entries: []store.Entry{{ID: t.ID, Cost: t.Cost, Age: age}},
		})
		return nil
	}
	return b.guard.Add(ctx, t, age)
}

func (b *backend) reset(ctx context.Context, key *store.Key, limits []*store.Limit) error {
	if b.memory != nil {
		b.memory.Reset(key, limits, 0)
		return nil
	}
	return b.guard.Reset(ctx, *key, limits)
}

// log lists a log, unless the store cannot.
func (b *backend) log(ctx context.Context, key *store.Key, l *store.Limit) ([]store.Entry, error) {
	if b.memory != nil {
		return b.memory.Log(key, l), nil
	}
	if _, lists := b.store.(store.Lister); !lists {
		return nil, configError("Log", b.name(), "this store cannot list a log: it has no method Log (store.Lister)",
			otherStore)
	}
	entries, err := b.guard.Log(ctx, *key, l)
	return entries, store.Error(err)
}

// lists reports whether the store can list a log.
func (b *backend) lists() bool {
	_, lists := b.store.(store.Lister)
	return b.memory != nil || lists
}

// overrider returns what keeps overrides, or nil; ofMemory is that of a store in memory.
func (b *backend) overrider(ofMemory store.Overrider) overrider {
	if b.memory != nil {
		return ofMemory
	}
	if _, keeps := b.store.(store.Overrider); !keeps {
		return nil
	}
	return b.guard
}

func (b *backend) close() error {
	b.permits.Close()
	if b.memory != nil {
		return nil
	}
	return b.guard.Close()
}
