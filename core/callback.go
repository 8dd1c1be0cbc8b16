package core

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/sashlimit/sash/core/adapter"
)

var contextType = reflect.TypeFor[context.Context]()

// native gives a callback its parameter. Bind has made sure that it is there;
// an adapter that did not call it is wrong, and panics here.
func native[C any]() func(adapter.Request) C {
	if reflect.TypeFor[C]() == contextType {
		// Not Native: gin's request is a Context too, but one that is reused.
		return func(r adapter.Request) C { return any(r.Context()).(C) } //nolint:forcetypeassert // C is context.Context
	}
	return func(r adapter.Request) C { return r.Native().(C) } //nolint:forcetypeassert // as said above
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
