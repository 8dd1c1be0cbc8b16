package core_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/testlen"
)

// within returns address or /64 number i of a prefix; numbers are spread over all of it.
func within(prefix string) func(i int) string {
	p := netip.MustParsePrefix(prefix)
	unit := 64 // what tells clients apart by default
	if p.Addr().Is4() {
		unit = 32
	}
	width := unit - p.Bits()
	return func(i int) string {
		// An odd factor makes this a permutation of the prefix's numbers.
		number := uint64(i) * 0x9e3779b97f4a7c15 >> 1 & (1<<width - 1)
		if width < 40 {
			number = uint64(i) * 0x9e3779b1 & (1<<width - 1)
		}
		if p.Addr().Is4() {
			a := p.Addr().As4()
			for b := range 4 {
				a[3-b] |= byte(number >> (8 * b))
			}
			return netip.AddrFrom4(a).String()
		}
		a := p.Addr().As16()
		for b := range 8 {
			a[7-b] |= byte(number >> (8 * b))
		}
		a[15] = 1
		return netip.AddrFrom16(a).String()
	}
}

// inTurn takes the keys of several prefixes in turn.
func inTurn(prefixes ...string) func(i int) string {
	all := make([]func(int) string, len(prefixes))
	for i, p := range prefixes {
		all[i] = within(p)
	}
	return func(i int) string { return all[i%len(all)](i / len(all)) }
}

// newcomers are clients from all over the world, none of them in a prefix that a test floods.
var newcomers = map[string]func(i int) string{
	"IPv4": func(i int) string { return fmt.Sprintf("%d.%d.%d.%d", 11+i%150, (37*i)%256, (91*i)%256, 1+i%250) },
	"IPv6": func(i int) string { return fmt.Sprintf("2a%02x:%x:%x:%x::1", i%100, 1+(7*i)%200, (11*i)%999, i) },
}

// login is a limit on logins by address, beside one by name in the same store.
func login(t *testing.T, store *core.MemoryStore) (byAddress, byName *core.Limiter) {
	t.Helper()
	byAddress, err := core.New(core.PerHour(5), core.ByIP(), core.WithStore(store))
	if err != nil {
		t.Fatal(err)
	}
	return byAddress, newLimiter(t, core.PerHour(5), core.WithStore(store), core.WithName("names"))
}

func allows(t *testing.T, l *core.Limiter, key string) bool {
	t.Helper()
	d, err := l.Allow(t.Context(), key)
	if err != nil {
		t.Fatal(key, err)
	}
	return d.Allowed
}

// A flood out of the addresses of a provider, or of a few, must not deny clients elsewhere their first request.
func TestFloodDeniesNobodyElse(t *testing.T) {
	testlen.SkipRace(t)
	floods := []struct {
		name         string
		places, keys int
		key          func(int) string
	}{
		{"IPv6 44, the default store", 1 << 18, 300_000, within("2001:db8:aa00::/44")},
		{"IPv6 48", 10_000, 30_000, within("2001:db8:aa00::/48")},
		{"IPv6 32", 10_000, 30_000, within("2001:db8::/32")},
		{"IPv4 16", 10_000, 30_000, within("198.51.0.0/16")},
		{"mixed", 10_000, 30_000, inTurn("2001:db8:aa00::/44", "2001:dc0::/32", "198.51.0.0/16")},
	}
	for _, flood := range floods {
		inBubble(t, flood.name, func(t *testing.T) {
			store := core.NewMemoryStore(core.WithMaxKeys(flood.places))
			byAddress, byName := login(t, store)
			passed := map[string]int{}
			late := flood.keys * 9 / 10 // by then the store is full, and keys share logs
			for i := range flood.keys {
				byAddress.Allow(t.Context(), flood.key(i))
				if i < late || (i-late)%((flood.keys-late)/100) != 0 {
					continue
				}
				n := (i - late) / ((flood.keys - late) / 100)
				for kind, key := range newcomers {
					if allows(t, byAddress, key(n)) {
						passed[kind]++
					}
				}
				if allows(t, byName, fmt.Sprint("user ", n)) {
					passed["text"]++
				}
			}
			t.Logf("of 100 newcomers each %v pass; %d keys", passed, store.Keys())
			for _, kind := range []string{"IPv4", "IPv6", "text"} {
				if passed[kind] < 90 {
					t.Errorf("of 100 %s newcomers %d pass, want 90", kind, passed[kind])
				}
			}
			if store.Keys() < flood.places/2 || store.Shared() == 0 {
				t.Errorf("%d of %d places are taken, and %d takes share a log: the flood was none",
					store.Keys(), flood.places, store.Shared())
			}
		})
	}
}

// Where keys that are no addresses have taken every place, addresses share logs with their neighbors.
func TestFloodOfAFullStore(t *testing.T) {
	testlen.SkipRace(t)
	synctest.Test(t, func(t *testing.T) {
		const places = 20_000
		store := core.NewMemoryStore(core.WithMaxKeys(places))
		byAddress, byName := login(t, store)
		for i := range places {
			byName.Allow(t.Context(), fmt.Sprint("user ", i))
		}
		flood := inTurn("2001:db8:aa00::/44", "2001:dc0::/32", "198.51.0.0/16")
		for i := range 30_000 {
			byAddress.Allow(t.Context(), flood(i))
		}
		for kind, key := range newcomers {
			passed := 0
			for i := range 400 {
				if allows(t, byAddress, key(i)) {
					passed++
				}
			}
			if passed < 360 {
				t.Errorf("of 400 %s newcomers %d pass, want 360", kind, passed)
			}
		}
		if n := store.Keys(); n != places {
			t.Errorf("%d of %d places are taken: newcomers had logs of their own", n, places)
		}
	})
}

// A key never exceeds its quota, wherever its takes are recorded, while floods come and go.
func TestQuotaHoldsThroughFloods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quota, places = 3, 60
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 1))
		store := core.NewMemoryStore(core.WithMaxKeys(places))
		l, err := core.New(core.PerMinute(quota), core.ByIP(), core.WithStore(store))
		if err != nil {
			t.Fatal(err)
		}
		flood := inTurn("2001:db8:aa00::/44", "198.51.0.0/16", "2001:dc0::/32")
		admitted := map[string][]time.Time{}
		own, shared := 0, 0
		for step := range 60_000 {
			key := flood(r.IntN(200))
			switch step / 10_000 % 3 {
			case 1:
				key = flood(r.IntN(20)) // few of them: most have a log of their own
			case 2:
				key = newcomers["IPv4"](r.IntN(100))
			}
			before := store.Shared()
			d, err := l.Allow(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed {
				admitted[key] = append(admitted[key], time.Now())
				if n := len(admitted[key]); n > quota && time.Since(admitted[key][n-1-quota]) < time.Minute {
					t.Fatalf("seed %#x, step %d: %s was admitted %d times in a window", seed, step, key, quota+1)
				}
			}
			if store.Shared() > before {
				shared++
			} else {
				own++
			}
			if r.IntN(10) == 0 {
				d.Undo(t.Context())
				if log := admitted[key]; d.Allowed {
					admitted[key] = log[:len(log)-1]
				}
			}
			if r.IntN(4) == 0 {
				time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
			}
		}
		if own < 10_000 || shared < 10_000 {
			t.Errorf("%d takes of own logs, %d of shared ones: this test has tested too little", own, shared)
		}
	})
}
