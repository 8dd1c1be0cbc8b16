package redisclient

import (
	"runtime"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A client has one hook, however many stores are made of it, and what is known of a client goes with it.
func TestClientsAreForgotten(t *testing.T) {
	count := func() (n int) {
		dials.Range(func(any, any) bool { n++; return true })
		return n
	}
	forgotten := func(whose string) {
		t.Helper()
		for range 1000 {
			if count() == 0 {
				return
			}
			runtime.GC()
			runtime.Gosched()
		}
		t.Fatalf("%d clients of %s are known after they have gone", count(), whose)
	}
	forgotten("earlier tests")
	func() {
		client := redis.NewClient(&redis.Options{})
		defer client.Close()
		ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
		defer ring.Close()
		for range 3 {
			New(&Package{}, client, Options{})
			New(&Package{}, ring, Options{})
		}
		if n := count(); n != 2 {
			t.Errorf("%d clients are known", n)
		}
	}()
	forgotten("this test")
}
