package core

import "github.com/sashlimit/sash/core/store"

// HasLedger reports whether key has a log of its own with entries, and whether that has a ledger.
func HasLedger(s *MemoryStore, key store.Key) (entries, ledger bool) { return s.logs.HasLedger(&key) }

// IsLeased reports whether a decision has spent units that were booked ahead, in its first log.
func IsLeased(d *Decision) bool { return d.q.LeasedOf(0).IsLeased() }
