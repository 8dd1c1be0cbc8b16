package redisclient

import (
	"runtime"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A client has one hook, however many stores are made of it, and what is known of a client goes with it.
func TestClientsAreForgotten(t *testing.T) {
	earlier := make(map[any]any) // clients of other tests, which something may still hold
	dials.Range(func(address, d any) bool { earlier[address] = d; return true })
	count := func() (n int) {
		dials.Range(func(address, d any) bool {
			if earlier[address] != d {
				n++
			}
			return true
		})
		return n
	}
	func() {
		client := redis.NewClient(&redis.Options{})
		defer client.Close()
		cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
		defer cluster.Close()
		for range 3 {
			New(&Package{}, client)
			New(&Package{}, cluster)
		}
		if n := count(); n != 2 {
			t.Errorf("%d clients are known", n)
		}
	}()
	for range 1000 {
		if count() == 0 {
			return
		}
		runtime.GC()
		runtime.Gosched()
	}
	t.Errorf("%d clients are known after they have gone", count())
}
