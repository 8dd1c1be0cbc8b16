// Package inflight keeps a set of requests that are in flight, so that a request that is seen twice, because a limiter
// is mounted twice on its path, is recognized.
//
// A value in the request's context would do the same, but requires a copy of each request.
package inflight

import (
	"reflect"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Token identifies a request. The zero Token identifies none.
//
// It is a pointer rather than a number: what it points to is not freed while a [Set] has the token, so its address is
// not used for another request.
type Token struct{ pointer unsafe.Pointer }

// TokenOf returns the token of a pointer, map or channel that the request has until it ends and that no other request
// has. For any other value it returns the zero Token.
func TokenOf(x any) Token {
	switch v := reflect.ValueOf(x); v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Chan, reflect.UnsafePointer:
		return Token{v.UnsafePointer()}
	default:
		return Token{}
	}
}

// Set is a set of tokens. The zero value is empty. It is safe for concurrent use. Requests that follow one another take
// no lock.
type Set struct{ shards [64]shard }

type shard struct {
	first unsafe.Pointer // a token's, or nil
	count atomic.Int32   // of more
	mu    sync.Mutex
	more  map[unsafe.Pointer]struct{} // further tokens
	_     [32]byte                    // fills a cache line
}

func (s *Set) shard(t Token) *shard { return &s.shards[uintptr(t.pointer)>>6%uintptr(len(s.shards))] }

// Acquire adds the token, and reports whether the set did not have it before. The zero Token is never added, so the
// result for it is always true.
func (s *Set) Acquire(t Token) bool {
	if t.pointer == nil {
		return true
	}
	sh := s.shard(t)
	if sh.count.Load() > 0 {
		sh.mu.Lock()
		_, found := sh.more[t.pointer]
		sh.mu.Unlock()
		if found {
			return false
		}
	}
	if atomic.CompareAndSwapPointer(&sh.first, nil, t.pointer) {
		return true
	}
	if atomic.LoadPointer(&sh.first) == t.pointer {
		return false
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.more == nil {
		sh.more = make(map[unsafe.Pointer]struct{})
	}
	sh.more[t.pointer] = struct{}{}
	sh.count.Add(1)
	return true
}

// Release removes the token if the set has it.
func (s *Set) Release(t Token) {
	if t.pointer == nil {
		return
	}
	sh := s.shard(t)
	if atomic.CompareAndSwapPointer(&sh.first, t.pointer, nil) {
		return
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if _, found := sh.more[t.pointer]; found {
		delete(sh.more, t.pointer)
		sh.count.Add(-1)
	}
}
