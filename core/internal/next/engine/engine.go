// Package engine is the limiter proper: a policy on a store, asked with identities and costs. It knows no requests;
// package core reads these, and has the types that users see.
//
// A decision goes this way: [Engine.Decide] takes a [Set] of limits, an identity for each of its keys and a cost for
// each limit. It makes a take for each limit, mostly one, replaces limits that have an override, looks for a ban, and
// has the logs in memory or the guard of a store decide. What they answer is a [Result], which later settles, gives back
// and releases what was taken.
package engine

import (
	"context"
	"time"

	"github.com/sashlimit/sash/core/internal/next/keys"
	"github.com/sashlimit/sash/core/internal/next/store"
)

// Config is what an [Engine] needs.
type Config struct {
	Policy string     // begins the names of logs: of [a-z0-9._-]
	Key    *keys.Spec // whose quota limits without a key of their own are
	Secret []byte     // identities in the names of logs are hashed with it, unless it is empty

	Store store.Store // comes as *memory.Store or guard.Config when these packages are there

	Lease     time.Duration // of WithLease, or 0
	Overrides bool          // look for overrides; the store is a store.Overrider
	Ban       *Ban          // or nil

	// PublicOverride returns what Override.Public has, for each override that is read. It may be nil.
	PublicOverride func(*Override) any
	// ShadowFailed is called when what a shadow has taken could not be settled or given back. It may be nil.
	ShadowFailed func(ctx context.Context, policy string, err error)
}

// Engine decides by sets of limits on one store. It is safe for concurrent use.
type Engine struct {
	config Config
}

// New makes an engine. It does no I/O. The error reports all mistakes, each as a [store.ConfigError].
func New(c Config) (*Engine, error) { return &Engine{config: c}, nil }

// Close replays what was admitted without the store, ends leases, and stops all work in the background.
func (e *Engine) Close() error { return nil }

// Reset deletes what an identity of the own key has used, of all limits that this process knows, those of LimitBy and
// of overrides included, and its bans. Permits stay.
func (e *Engine) Reset(_ context.Context, _ store.Identity) error { return nil }

// Log lists the entries of a limit's log, oldest first.
func (e *Engine) Log(_ context.Context, _ *Limit, _ store.Identity) ([]store.Entry, error) { return nil, nil }
