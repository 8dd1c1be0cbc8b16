package core

import (
	"reflect"
	"sync"
	"unsafe"
)

// once knows the exchanges that a limiter has let in and that have not ended,
// so that one which comes by again, through a nested mount, is not counted again.
//
// A mark within the request's context would say the same, but costs a copy of
// the request each time. Pointers are kept as such, not as numbers: an exchange that
// is still open here cannot be freed, so no other gets its address.
type once [64]struct {
	mu    sync.Mutex
	first unsafe.Pointer // one that is open, or nil
	more  map[unsafe.Pointer]struct{}
	_     [40]byte // no two locks on one cache line
}

// exchangeOf is the address of what a request has from beginning to end and
// shares with no other, or nil.
func exchangeOf(x any) unsafe.Pointer {
	switch v := reflect.ValueOf(x); v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Chan, reflect.UnsafePointer:
		return v.UnsafePointer()
	default:
		return nil
	}
}

// enter reports whether the exchange is new. Nil always is.
func (o *once) enter(exchange unsafe.Pointer) bool {
	if exchange == nil {
		return true
	}
	s := &o[uintptr(exchange)>>6%uintptr(len(o))]
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.more[exchange]; ok || s.first == exchange {
		return false
	}
	if s.first == nil {
		s.first = exchange
		return true
	}
	if s.more == nil {
		s.more = make(map[unsafe.Pointer]struct{})
	}
	s.more[exchange] = struct{}{}
	return true
}

func (o *once) leave(exchange unsafe.Pointer) {
	if exchange == nil {
		return
	}
	s := &o[uintptr(exchange)>>6%uintptr(len(o))]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == exchange {
		s.first = nil
	} else {
		delete(s.more, exchange)
	}
}
