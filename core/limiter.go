package core

import (
	"context"
	"sync/atomic"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/gate"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/refusal"
	"github.com/sashlimit/sash/core/store"
)

// Store keeps the logs of limiters: a [MemoryStore], one of package redisstore, or your own. See package store.
type Store = store.Store

// Entry is a recorded request in what [Limiter.Log] lists: At, on the store's clock, and Cost, in units.
type Entry = store.Entry

// Limiter decides about requests. It is safe for concurrent use. Make one with [New] and keep it: a limiter that is
// made within a handler has empty logs, so it limits nothing. It need not be closed; see [Limiter.Close].
type Limiter struct {
	answers

	gate   gate.Gate
	engine *engine.Engine
	*shared
}

// answers are how requests are answered. Limiters of one set of rules may differ in them.
type answers struct {
	headers    Headers
	fields     func(Decision, adapter.HeaderMap) // of WithHeadersFunc
	deny, fail any                               // the handlers given to an adapter's WithDeny and WithError; see Bind
	callbacks  []keys.Callback
}

// shared is what limiters of one set of rules have in common.
type shared struct {
	store     Store
	refunds   func(adapter.Request, int) bool
	observers []func(context.Context, Event)
	inContext bool // handlers get the decision
	keeps     bool // a key may replace the context of a request
	refusals  refusal.Log
	unshare   func() // when it is closed
	closed    atomic.Bool
	rules     func() []*engine.Rule // those in force, of a limiter with rules
}

// Close replays to the store what [FailLocal] has admitted without it, and what the store was not told of leases
// ([WithLease]), for at most 5 s, and stops the goroutine that waits for the store to answer again. If nothing is left
// to replay, it returns at once; if the store still does not answer, it returns as soon as that is known. The error
// then says how many units were not replayed; later calls return the same error. Permits of [InFlight] are renewed no
// longer, so those still held end with their lease. Close does not close the store.
//
// A closed limiter continues to decide, but what it admits without the store is not replayed. The packages prommetrics,
// otelmetrics and dashboard forget the limiter, and keep what they have counted until their Forget is called.
func (l *Limiter) Close() error {
	if !l.closed.Swap(true) && l.unshare != nil {
		l.unshare()
	}
	return l.engine.Close()
}

// policy returns the name of the policy.
func (l *Limiter) policy() string { return l.engine.Policy() }
