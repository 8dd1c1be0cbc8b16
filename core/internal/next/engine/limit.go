package engine

import (
	"time"

	"github.com/sashlimit/sash/core/internal/next/keys"
	"github.com/sashlimit/sash/core/internal/next/limittext"
	"github.com/sashlimit/sash/core/internal/next/store"
)

// Given is a limit as a user has written it.
type Given struct {
	limittext.Limit

	Key   *keys.Spec // nil: the policy's own
	Label string     // that Limit.Named gave, which names the logs of a limit with a key; empty: the key's scope
}

// Limit is a limit that is ready to be decided. It is a quota on one log of each identity of its key.
type Limit struct {
	Name     string // in header fields
	Text     string // as users write it, for errors
	Unit     string // what it counts, or empty: requests
	InFlight bool   // it counts requests at the same time, each with a permit
	Quota    int    // units; of a token bucket those that a full one has
	Window   time.Duration
	Key      int       // index in Set.Keys
	Rule     *Rule     // that has chosen it, or nil
	named    bool      // Name was given
	log      *limitLog // what the store is asked
}

// Store returns the limit as a store gets it now. It is another one when a period of the calendar has ended.
func (l *Limit) Store() *store.Limit { return l.log.limit }

// IsUnlimited reports whether an override lets the limit deny nothing.
func (l *Limit) IsUnlimited() bool { return l.log.limit.Unlimited }

type limitLog struct{ limit *store.Limit }
