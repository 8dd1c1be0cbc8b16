package core

// HasLedger reports whether key has a log of its own with entries, and whether that has a ledger.
func HasLedger(s *MemoryStore, key StorageKey) (entries, ledger bool) {
	sh, log, own, _ := s.locked(&key)
	defer sh.unlock(log)
	if !own || log.Len() == 0 {
		return false, false
	}
	return true, log.HasLedger()
}
