package core

import "github.com/sashlimit/sash/core/store"

// HasLedger reports whether key has a log of its own with entries, and whether that has a ledger.
func HasLedger(s *MemoryStore, key store.Key) (entries, ledger bool) { return s.logs.HasLedger(&key) }
