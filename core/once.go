package core

import (
	"reflect"
	"sync"
	"sync/atomic"
	"unsafe"
)

// once knows the exchanges that a limiter has let in and that have not ended,
// so that one which comes by again, through a nested mount, is not counted again.
//
// A mark within the request's context would say the same, but costs a copy of
// the request each time. Pointers are kept as such, not as numbers: an exchange that
// is still open here cannot be freed, so no other gets its address.
//
// One exchange after the other needs no lock.
type once [64]struct {
	first unsafe.Pointer // one that is open, or nil
	many  atomic.Int32   // how many there are in more
	mu    sync.Mutex
	more  map[unsafe.Pointer]struct{}
	_     [32]byte // no two on one cache line
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
	if s.many.Load() > 0 {
		s.mu.Lock()
		_, open := s.more[exchange]
		s.mu.Unlock()
		if open {
			return false
		}
	}
	if atomic.CompareAndSwapPointer(&s.first, nil, exchange) {
		return true
	}
	if atomic.LoadPointer(&s.first) == exchange {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.more == nil {
		s.more = make(map[unsafe.Pointer]struct{})
	}
	s.more[exchange] = struct{}{}
	s.many.Add(1)
	return true
}

func (o *once) leave(exchange unsafe.Pointer) {
	if exchange == nil {
		return
	}
	s := &o[uintptr(exchange)>>6%uintptr(len(o))]
	if atomic.CompareAndSwapPointer(&s.first, exchange, nil) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, open := s.more[exchange]; open {
		delete(s.more, exchange)
		s.many.Add(-1)
	}
}
