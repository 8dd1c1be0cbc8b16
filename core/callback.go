package core

import (
	"context"
	"reflect"

	"github.com/sashlimit/sash/core/adapter"
)

// callbackType is a callback's parameter type, which the adapter must be able to serve.
type callbackType struct {
	option string
	typ    reflect.Type
}

func callbackTypeOf[C any](option string) callbackType {
	return callbackType{option, reflect.TypeFor[C]()}
}

var contextType = reflect.TypeFor[context.Context]()

// native returns a function that converts a request to the parameter type of a callback. Bind has checked that the
// adapter supports it; with an adapter that did not call Bind, the callback panics.
func native[C any]() func(adapter.Request) C {
	if reflect.TypeFor[C]() == contextType {
		// Native would be wrong here: gin's request is a context.Context too, but gin reuses it.
		//nolint:forcetypeassert // C is context.Context
		return func(r adapter.Request) C { return any(r.Context()).(C) }
	}
	return func(r adapter.Request) C { return r.Native().(C) } //nolint:forcetypeassert // Bind has checked it
}

// isNil also reports whether v is a nil pointer, function or the like: a Store that holds a nil *T is not usable.
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
