package store

import "sync"

// LeftError is the error of a call that its caller has left at the end of its context, while the store still waits for
// its server.
type LeftError struct {
	Err  error // why the call was left, such as a StoreError
	Call *Call
}

func (e *LeftError) Error() string { return e.Err.Error() }

func (e *LeftError) Unwrap() error { return e.Err }

// Call is a call that goes on after its caller has left. The zero Call is ready for use.
type Call struct {
	mu       sync.Mutex
	ended    bool
	recorded bool
	err      error
	then     func(recorded bool, err error)
}

// End is for the store: it says how the call has ended. With an error, nobody knows whether the takes were recorded.
func (c *Call) End(recorded bool, err error) {
	c.mu.Lock()
	c.ended, c.recorded, c.err = true, recorded, err
	then := c.then
	c.mu.Unlock()
	if then != nil {
		then(recorded, err)
	}
}

// Then has f called once, when the call has ended: now, if it has.
func (c *Call) Then(f func(recorded bool, err error)) {
	c.mu.Lock()
	c.then = f
	ended, recorded, err := c.ended, c.recorded, c.err
	c.mu.Unlock()
	if ended {
		f(recorded, err)
	}
}
