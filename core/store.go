package core

import "github.com/sashlimit/sash/core/store"

// Package store defines what stores return.
type (
	// Store keeps the logs of limiters: a [MemoryStore], one of package redisstore, or your own. See package store.
	Store = store.Store

	// Entry is a recorded request in what [Limiter.Log] lists: At, on the store's clock, and Cost, in units.
	Entry = store.Entry

	// ConfigError is one mistake in the configuration of a limiter, with the option, the value and what would be right.
	// [New] joins all mistakes; [errors.As] returns the first.
	ConfigError = store.ConfigError

	// StoreError means that the store could not answer. Its text is for operators: it may contain addresses and is
	// never sent to a client. Class is the kind of problem, in a word suitable for a metric. Advice tells what to do
	// about it.
	StoreError = store.StoreError
)
