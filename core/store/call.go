package store

import "sync"

// LeftError is the error of a call that its caller has left at the end of its context, while the store still waits for
// its server.
type LeftError struct {
	Err error // why the call was left, such as a StoreError

	mu    sync.Mutex
	ended bool
	then  func()
}

func (e *LeftError) Error() string { return e.Err.Error() }

func (e *LeftError) Unwrap() error { return e.Err }

// End is for the store: it says that the call has ended. It may be called before the caller has the error.
func (e *LeftError) End() {
	e.mu.Lock()
	e.ended = true
	then := e.then
	e.mu.Unlock()
	if then != nil {
		then()
	}
}

// Then has f called once, when the call has ended: now, if it has.
func (e *LeftError) Then(f func()) {
	e.mu.Lock()
	e.then = f
	ended := e.ended
	e.mu.Unlock()
	if ended {
		f()
	}
}
