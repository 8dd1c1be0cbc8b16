// Package engine is the limiter proper: a policy on a store, asked with identities and costs. It knows no requests;
// package core reads these, and has the types that users see.
//
// A decision goes this way: [Engine.Decide] gets a [Set] of limits, an identity for each of its keys and a cost in
// each of its units. It replaces limits that have an override, looks for a ban, makes a take for each limit, which is
// mostly one, and has the backend ask their logs. What they answer is a [Result], which later settles, gives back and
// releases what was taken.
package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/internal/queue"
	"github.com/sashlimit/sash/core/store"
)

// Config is what an [Engine] needs.
type Config struct {
	Policy string     // begins the names of logs: of [a-z0-9._-]
	Key    *keys.Spec // whose quota limits without a key of their own are
	Secret []byte     // identities in the names of logs are hashed with it, unless it is empty

	Memory    *memory.Store   // or nil: Guard is of a store outside the process
	Overrider store.Overrider // keeps the overrides of Memory
	Guard     guard.Config    // New sets Policy and Freed

	Ban       *Ban    // or nil
	Overrides bool    // look for overrides, which the store must keep
	Spread    *Spread // or nil; the store must list logs

	// ShadowFailed is told which policy in shadow has failed, and why. It may be nil.
	ShadowFailed func(ctx context.Context, policy string, err error)
}

// Engine decides by sets of limits on one store. It is safe for concurrent use.
type Engine struct {
	config Config
	store  backend
	own    *Key // of the policy's limits
	shadow *Key // of those that are tried out

	chosen, tried memo[uint64, chosen]
	combined      memo[combination, *Set]
	overridden    memo[overriddenID, *Set]
	seen          memo[logID, *store.Limit] // without identities
	namespaces    memo[string, *store.Namespace]
	resets        atomic.Uint64       // so far
	resetOf       memo[logID, uint64] // without logs
	spreads       memo[logID, *spreadLog]

	ban       *ban       // or nil
	overrides *overrides // or nil
	settled   memo[settledID, *current]
	lines     queue.Lines[logID]
}

// New makes an engine. It does no I/O. It returns one even with an error, so that further mistakes can be found; each
// is a [store.ConfigError].
func New(c Config) (*Engine, error) {
	if c.Memory != nil {
		c.Guard.Lease = 0 // units in memory need not be taken ahead
	}
	e := &Engine{config: c}
	e.chosen.size, e.tried.size, e.spreads.size, e.settled.size = mostChosen, mostChosen, mostSpread, mostSettled
	e.store = newBackend(&c, func(k *store.Key) { e.wakeKey(k) })
	e.own = e.ownKey(&Rule{Policy: c.Policy, Name: c.Policy, Key: c.Key})
	e.shadow = e.ownKey(&Rule{Policy: c.Policy, Name: c.Policy, Key: c.Key, Shadow: true})
	err := e.store.validate()
	if c.Ban != nil {
		var wrong error
		e.ban, wrong = e.newBan(c.Ban)
		err = errors.Join(err, wrong)
	}
	if c.Overrides && e.store.overrider != nil {
		e.overrides = newOverrides(e, e.store.overrider)
	}
	return e, err
}

// Policy returns the name of the policy.
func (e *Engine) Policy() string { return e.config.Policy }

// Joins returns nil if the store can decide about several logs together, and otherwise why not.
func (e *Engine) Joins() error {
	one := store.Limit{Log: "a", Quota: 1, Window: time.Second}
	other := one
	other.Log = "b"
	return e.store.validate(&one, &other)
}

// Close replays what was admitted without the store, ends leases, and stops all work in the background.
func (e *Engine) Close() error {
	e.store.permits.Close()
	return e.store.Close()
}
