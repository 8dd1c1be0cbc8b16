package inflight

import (
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"
)

// Goroutines acquire and release tokens of their own in four shards. A token can be acquired once until it is released.
func TestSet(t *testing.T) {
	var s Set
	memory := make([]byte, 1<<16)
	var all sync.WaitGroup
	for g := range 16 {
		all.Go(func() {
			mine := TokenOf(&memory[(g%4)<<12+g])
			for range 5000 {
				if !s.Acquire(mine) {
					t.Errorf("token %d was released, and cannot be acquired", g)
					return
				}
				for range rand.IntN(3) {
					if s.Acquire(mine) {
						t.Errorf("token %d was acquired twice", g)
						return
					}
				}
				s.Release(mine)
			}
		})
	}
	all.Wait()
	for i := range s.shards {
		if sh := &s.shards[i]; sh.first != nil || len(sh.more) > 0 || sh.count.Load() != 0 {
			t.Errorf("shard %d still has %v, %v", i, sh.first, sh.more)
		}
	}
	for range 2 {
		if !s.Acquire(Token{}) {
			t.Error("the zero Token can always be acquired")
		}
	}
	s.Release(Token{})
}

func TestTokenOf(t *testing.T) {
	x, m := new(int), map[string]int{}
	for _, same := range []any{x, m, make(chan int), unsafe.Pointer(x)} {
		if token := TokenOf(same); token == (Token{}) || token != TokenOf(same) {
			t.Errorf("the token of a %T is %v, then %v", same, token, TokenOf(same))
		}
	}
	if TokenOf(x) == TokenOf(new(int)) {
		t.Error("two pointers have the same token")
	}
	for _, none := range []any{nil, (*int)(nil), 7, "text", struct{}{}} {
		if token := TokenOf(none); token != (Token{}) {
			t.Errorf("the token of %T is %v, want none", none, token)
		}
	}
}
