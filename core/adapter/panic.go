package adapter

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Guard runs a handler and returns its panic as a [PanicError], for frameworks in which a panic ends the process.
func Guard(handler func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = NewPanicError(p)
		}
	}()
	return handler()
}

// PanicError is a panic in a callback. It is answered with 500 and kept from ending the process, as it would in fiber.
type PanicError struct {
	Value any    // what was passed to panic
	Stack []byte // where, as [debug.Stack] writes it

	callers []uintptr
}

// NewPanicError must be called by the deferred function that has recovered p, while the frames that panicked are on the
// stack.
func NewPanicError(p any) *PanicError {
	callers := make([]uintptr, 64)
	return &PanicError{Value: p, Stack: debug.Stack(), callers: callers[:runtime.Callers(2, callers)]}
}

// Frames returns the frames that panicked, the innermost first.
func (e *PanicError) Frames() *runtime.Frames { return runtime.CallersFrames(e.callers) }

func (e *PanicError) Error() string { return fmt.Sprintf("sash: a callback panicked: %v", e.Value) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ConstantError is an error whose text is always the same, and so contains nothing of a request. A limiter logs its
// text; of other errors of callbacks it logs only the type.
type ConstantError struct{ Err error }

func (e *ConstantError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *ConstantError) Unwrap() error { return e.Err }
