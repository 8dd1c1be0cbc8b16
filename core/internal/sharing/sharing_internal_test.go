package sharing

import (
	"fmt"
	"runtime"
	"testing"
)

type sharedStore struct {
	client *int
	prefix string
	_      [64]byte // not of a size that is allocated together with others
}

func (s *sharedStore) LogsOf() (any, string) { return s.client, s.prefix }

// What the registry knows of limiters goes with them, or with their store.
func TestRegistryForgets(t *testing.T) {
	var r Registry
	store := new([128]byte)
	var remove []func()
	for i := range 20 {
		remove = append(remove, r.Add(store, Limiter{Name: fmt.Sprint(i / 2), Limits: "limits", Named: true}))
	}
	for i, f := range remove {
		if f(); len(r.living) != 10-(i+1)/2 {
			t.Fatalf("%d names are known after %d limiters were closed", len(r.living), i+1)
		}
	}
	r.Add(store, Limiter{Name: "never closed"})
	runtime.KeepAlive(store) // and then nobody refers to it
	runtime.GC()
	if r.Add(new([128]byte), Limiter{Name: "another"}); len(r.living) != 1 {
		t.Errorf("%d names are known after the store of one is gone", len(r.living))
	}
}

// Two stores of one client and prefix hold the same logs.
func TestRegistryKnowsClients(t *testing.T) {
	var r Registry
	client := new(int)
	limiter := Limiter{Name: "api", Limits: "100-per-minute"}
	for i, c := range []struct {
		client *int
		prefix string
		warned int
	}{{client, "a", 0}, {client, "b", 0}, {new(int), "a", 0}, {client, "a", 1}, {client, "a", 1}} {
		r.Add(&sharedStore{client: c.client, prefix: c.prefix}, limiter)
		if len(r.warned) != c.warned {
			t.Errorf("%d: %d warnings, want %d", i, len(r.warned), c.warned)
		}
	}
	runtime.KeepAlive(client)
}
