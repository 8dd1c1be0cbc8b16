package core

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/ban"
	"github.com/sashlimit/sash/core/internal/bridge"
	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/internal/inflight"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/lifetime"
	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/internal/override"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/internal/queue"
	"github.com/sashlimit/sash/core/internal/refusal"
	"github.com/sashlimit/sash/core/internal/slots"
	"github.com/sashlimit/sash/core/store"
)

// Store keeps the logs of limiters: a [MemoryStore], one of package redisstore, or your own. See package store.
type Store = store.Store

// Entry is a recorded request in what [Limiter.Log] lists: At, on the store's clock, and Cost, in units.
type Entry = store.Entry

// Limiter decides about requests. It is safe for concurrent use. Make one with [New] and keep it: a limiter that is
// made within a handler has empty logs, so it limits nothing. It need not be closed; see [Limiter.Close].
type Limiter struct {
	settings
	*shared

	policy    *policy
	key       *keys.Spec
	lister    store.Lister  // store, if it can list logs, or nil
	memory    *memory.Store // of store, if it is a MemoryStore, or nil
	guard     *guard.Guard  // of any other store, which may fail to answer
	namespace *store.Namespace
	permits   *slots.Set                     // of requests in flight
	overrides *override.Set[*activeOverride] // or nil without WithOverrides
	lease     time.Duration                  // of [WithLease], or 0

	keeps   bool // a key may replace the context of a request
	rereads bool // a request may read a key more than once, unless it remembers its keys

	choose    bridge.Chooser[Key] // of a limiter with rules, or nil
	byFailure *byFailure          // of a limiter with rules
}

// Close replays to the store what [FailLocal] has admitted without it, and what the store was not told of leases
// ([WithLease]), for at most 5 s, and stops the goroutine that waits for the store to answer again. If nothing is left
// to replay, it returns at once; if the store still does not answer, it returns as soon as that is known. The error
// then says how many units were not replayed; later calls return the same error. Permits of [InFlight] are renewed no
// longer, so those still held end with their lease. Close does not close the store.
//
// A closed limiter continues to decide, but what it admits without the store is not replayed, and the packages
// prommetrics, otelmetrics and dashboard do not count what it decides. They drop what they have of a policy when its
// last limiter is closed; see [Event.Keep].
func (l *Limiter) Close() error {
	defer l.life.Close()
	if l.byFailure == nil {
		return l.closeOne()
	}
	var errs [len(l.byFailure)]error
	for i, v := range l.byFailure {
		errs[i] = v.closeOne()
	}
	return errors.Join(errs[:]...)
}

func (l *Limiter) closeOne() error {
	l.permits.Close()
	if l.guard == nil {
		return nil
	}
	l.guard.EndLeases(context.Background(), nil)
	return l.guard.Close()
}

// settings are what options choose and a limiter keeps.
type settings struct {
	store         Store
	prefixes      keys.Prefixes
	draft, legacy bool // the header fields of responses: those of the draft, and X-RateLimit
	mode          store.Mode
	ban           *ban.Rule
	lists         []*keys.List // pointers, so that a copy of a Limiter prints the same and shares its locks
	cost          func(adapter.Request) int
	costs         map[string]func(adapter.Request) int // by unit
	skip          func(adapter.Request) bool
	refunds       func(adapter.Request, int) bool
	observers     []func(context.Context, Event)
	inContext     bool // handlers get the decision
	deny, fail    any  // the handlers given to an adapter's WithDeny and WithError; see Bind
	callbacks     []keys.Callback
}

// byFailure are copies of a limiter that differ in what decides while the store does not answer, by Failure.
type byFailure [3]*Limiter

// shared is what copies of a limiter have in common.
type shared struct {
	life       lifetime.Lifetime
	inFlight   inflight.Set
	queues     queue.Queues[queueKey, *plan.Log]
	refusals   refusal.Log
	ruleSpaces sync.Map            // of *plan.NamedSpaces by name, of a limiter with rules
	inForce    func() []plan.Named // of a limiter with rules
	asked      atomic.Bool         // a call has named a key by a text
}

// queueKey is a comparable store.Key. Limiters with the same policy name, and so the same log, have separate queues,
// because each has its own namespaces.
type queueKey struct {
	namespace *store.Namespace
	identity
}

func queueKeyOf(k *store.Key) queueKey { return queueKey{k.Namespace, k.Identity} }

// wake wakes the first call that waits for a log to which something was given back.
func (l *Limiter) wake(log *store.Key) { l.queues.Wake(queueKeyOf(log)) }
