package core

import "github.com/sashlimit/sash/core/store"

// What stores return is defined in package store.
type (
	// Store keeps the logs of limiters: a [MemoryStore], one of package redisstore, or your own. See package store.
	Store = store.Store

	// Entry is a recorded request in what [Limiter.Log] lists: At, on the store's clock, and Cost, in units.
	Entry = store.Entry

	// ConfigError is one mistake in how a limiter was put together. [New] joins all it finds; [errors.As] takes the
	// first out. It has the option, the value and what would be right.
	ConfigError = store.ConfigError

	// StoreError says that the store could not answer. Its text is for operators: it may hold addresses and is never
	// sent to a client. Class names the kind of trouble in a word fit for a metric, Advice what to do about it.
	StoreError = store.StoreError
)

// identity is whose quota a request draws from.
type identity = store.Identity
