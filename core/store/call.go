package store

import "sync"

// LeftError is the error of a call that its caller has left at the end of its context, while the store still waits for
// its server.
type LeftError struct {
	Err error // why the call was left, such as a StoreError

	mu       sync.Mutex
	ended    bool
	recorded bool
	failed   error
	then     func(recorded bool, err error)
}

func (e *LeftError) Error() string { return e.Err.Error() }

func (e *LeftError) Unwrap() error { return e.Err }

// End is for the store: it says how the call has ended. With an error, nobody knows whether the takes were recorded. It
// may be called before the caller has the error.
func (e *LeftError) End(recorded bool, err error) {
	e.mu.Lock()
	e.ended, e.recorded, e.failed = true, recorded, err
	then := e.then
	e.mu.Unlock()
	if then != nil {
		then(recorded, err)
	}
}

// Then has f called once, when the call has ended: now, if it has.
func (e *LeftError) Then(f func(recorded bool, err error)) {
	e.mu.Lock()
	e.then = f
	ended, recorded, err := e.ended, e.recorded, e.failed
	e.mu.Unlock()
	if ended {
		f(recorded, err)
	}
}
