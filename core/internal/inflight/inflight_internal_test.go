package inflight

import (
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"
)

// Goroutines acquire and release tokens of their own in one shard. A token can be acquired once until it is released.
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

// A shard has room for one token outside its map. Each of three tokens in one shard is released first, second and last.
func TestSharedShard(t *testing.T) {
	memory := make([]byte, 3)
	tokens := []Token{TokenOf(&memory[0]), TokenOf(&memory[1]), TokenOf(&memory[2])}
	for _, order := range [][]int{{0, 1, 2}, {1, 2, 0}, {2, 0, 1}} {
		var s Set
		for _, token := range tokens {
			if !s.Acquire(token) || s.Acquire(token) {
				t.Fatalf("order %v: not acquired, or twice", order)
			}
		}
		for n, i := range order {
			if s.Release(tokens[i]); !s.Acquire(tokens[i]) {
				t.Errorf("order %v: token %d was released, and cannot be acquired", order, i)
			}
			s.Release(tokens[i])
			s.Release(tokens[i]) // does nothing
			for _, other := range order[n+1:] {
				if s.Acquire(tokens[other]) {
					t.Errorf("order %v: token %d was acquired twice", order, other)
				}
			}
		}
	}
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
