package core

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
)

// Request is what an adapter shows of a request in progress. Each method is
// there because keys ask for it; what a framework calls its request (Native)
// serves the callbacks that users write for that framework.
type Request interface {
	Context() context.Context
	Peer() Peer
	Header(name string) []string // all field lines, in the order they came
	Value(key any) any           // what earlier middleware left under key
	Native() any
}

var contextType = reflect.TypeFor[context.Context]()

// native gives a callback its parameter. Bind has made sure that it is there;
// an adapter that did not call it is wrong, and panics here.
func native[C any]() func(Request) C {
	if reflect.TypeFor[C]() == contextType {
		// Not Native: gin's request is a Context too, but one that is reused.
		return func(r Request) C { return any(r.Context()).(C) } //nolint:forcetypeassert // C is context.Context
	}
	return func(r Request) C { return r.Native().(C) } //nolint:forcetypeassert // as said above
}

// NewFor is [New] for an adapter whose requests are C. Among the mistakes it
// reports are callbacks written for another framework.
func NewFor[C any](p Policy, k Key, opts ...Option) (*Limiter, error) {
	l, err := build(p, k, opts)
	if err := errors.Join(err, serves[C](l)); err != nil {
		return nil, err
	}
	return l, nil
}

// Bind prepares a limiter for an adapter whose requests are C: it checks that
// callbacks take a C and returns the handlers that answer denials and errors,
// which are the given ones unless the user set others; see [OnDeny].
func Bind[C, Deny, Fail any](l *Limiter, deny Deny, fail Fail) (Deny, Fail, error) {
	if l == nil || l.store == nil {
		return deny, fail, &ConfigError{Option: "From", Value: "nil", Reason: "make the limiter with core.New and look at its error"}
	}
	if err := serves[C](l); err != nil {
		return deny, fail, err
	}
	if h, ok := l.deny.(Deny); ok {
		deny = h
	}
	if h, ok := l.fail.(Fail); ok {
		fail = h
	}
	return deny, fail, nil
}

func serves[C any](l *Limiter) error {
	var faults []error
	for _, w := range l.wants {
		if w.typ != contextType && w.typ != reflect.TypeFor[C]() {
			faults = append(faults, &ConfigError{
				Option: w.option,
				Value:  fmt.Sprintf("func(%v)", w.typ),
				Reason: fmt.Sprintf("this middleware's requests are %v: write the function for that", reflect.TypeFor[C]()),
			})
		}
	}
	return errors.Join(faults...)
}

// OnDeny is for adapters: it carries the handler of a WithDeny, which answers denied
// requests in the framework's own way. C is what that framework calls a request.
func OnDeny[C, Deny any](handler Deny) Option {
	return func(c *config) {
		c.deny = handler
		c.callback("WithDeny", wantOf[C]("WithDeny"), isNil(handler))
	}
}

// OnError is for adapters: it carries the handler of a WithError, which answers requests
// that could not be decided.
func OnError[C, Fail any](handler Fail) Option {
	return func(c *config) {
		c.fail = handler
		c.callback("WithError", wantOf[C]("WithError"), isNil(handler))
	}
}

// Refuse is for adapters on net/http: it answers with status unless the handler
// writes another one.
func Refuse(w http.ResponseWriter, status int, answer func(http.ResponseWriter)) {
	r := &refusal{ResponseWriter: w, status: status}
	answer(r)
	r.begin()
}

type refusal struct {
	http.ResponseWriter
	status int // to be written, unless it is zero
}

func (r *refusal) WriteHeader(status int) {
	if status >= http.StatusOK { // not 103, say
		r.status = 0
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *refusal) Write(b []byte) (int, error) {
	r.begin()
	return r.ResponseWriter.Write(b)
}

// FlushError is what http.ResponseController calls: it would go past the status.
func (r *refusal) FlushError() error {
	r.begin()
	return http.NewResponseController(r.ResponseWriter).Flush()
}

func (r *refusal) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *refusal) begin() {
	if r.status != 0 {
		r.WriteHeader(r.status)
	}
}

// Guard is for adapters whose framework does not survive a panic: it runs a
// handler and makes its panic a [PanicError]; see [Limiter.Report].
func Guard(handler func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = newPanicError(p)
		}
	}()
	return handler()
}

// WithCause is for adapters: an error that reads as err and is its cause as well, so that a
// framework's error handler finds the status it knows and tells clients nothing else.
func WithCause(err, cause error) error { return &caused{err, cause} }

type caused struct{ err, cause error }

func (c *caused) Error() string   { return c.err.Error() }
func (c *caused) Unwrap() []error { return []error{c.err, c.cause} }

// isNil sees through an interface: a nil *T in a Store is not a Store.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Interface, reflect.Slice, reflect.Chan:
		return r.IsNil()
	}
	return false
}
