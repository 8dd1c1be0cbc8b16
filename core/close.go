package core

import "errors"

// Close replays what [FailLocal] has admitted and the store does not know yet, for at most 5 s, and stops the goroutine
// that waits for the store to answer again. If nothing is left to replay, it returns at once; if the store still does
// not answer, it returns as soon as that is known. The error then tells how many units were not replayed; later calls
// return the same error. Slots of [InFlight] are renewed no longer, so those still held end with their lease. Close
// does not close the store.
//
// A closed limiter continues to decide, but the packages prommetrics, otelmetrics and dashboard do not count what it
// decides. They drop what they have of a policy when its last limiter is closed; see [Event.Keep].
func (l *Limiter) Close() error {
	defer l.life.Close()
	if l.variants == nil {
		return l.closeOne()
	}
	var errs [len(l.variants)]error
	for i, v := range l.variants {
		errs[i] = v.closeOne()
	}
	return errors.Join(errs[:]...)
}

func (l *Limiter) closeOne() error {
	if l.slots != nil {
		l.slots.Close()
	}
	if l.guard == nil {
		return nil
	}
	return l.guard.Close()
}
