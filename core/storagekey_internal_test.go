package core

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

// A digest that is remembered is that of nobody else, whoever else asks meanwhile.
func TestRememberedDigests(t *testing.T) {
	for name, secret := range map[string][]byte{"SHA-256": nil, "HMAC": []byte("a secret of sixteen bytes")} {
		t.Run(name, func(t *testing.T) {
			sp := newSpace("p", secret)
			var keys []StorageKey
			for _, text := range []string{"", "a", "b", "a longer text than what lies within a kept key", strings.Repeat("x", longestText), strings.Repeat("x", longestText+1), strings.Repeat("x", longestText) + "y"} {
				for _, kind := range []string{kindBy, "hdr"} {
					for _, scope := range []string{"", "x-api-key"} {
						keys = append(keys, StorageKey{space: sp, identity: identity{kind: kind, scope: scope, text: text}})
					}
				}
			}
			// Without a secret these are not hashed.
			for _, a := range []string{"192.0.2.1/32", "192.0.2.0/24", "::ffff:192.0.2.1/128", "2001:db8::/64", "2001:db8::/56"} {
				p := netip.MustParsePrefix(a)
				keys = append(keys, StorageKey{space: sp, identity: identity{kind: "ip", addr: p.Addr(), bits: p.Bits()}}, StorageKey{space: sp, identity: identity{kind: "ip", text: a}})
			}
			remembered := make([]bool, len(keys))
			var wait sync.WaitGroup
			var mu sync.Mutex
			for range 4 {
				wait.Go(func() {
					for range 20_000 {
						i := rand.IntN(len(keys))
						k := &keys[i]
						last := sp.recent.Load()
						got, want := k.String(), string(k.appendDigest(fmt.Append(nil, "1:p:", k.kind, ":")))
						if k.addr.IsValid() && secret == nil {
							want = string(appendAddr([]byte("1:p:ip:"), k.addr, k.bits))
						}
						if got != want {
							t.Errorf("%v is %s, not %s", k.identity, got, want)
							return
						}
						if last != nil && last.key.names(k) {
							mu.Lock()
							remembered[i] = true
							mu.Unlock()
						}
					}
				})
			}
			wait.Wait()
			for i, k := range keys {
				if want := len(k.text)+len(k.scope) <= longestText && (secret != nil || !k.addr.IsValid()); remembered[i] != want {
					t.Errorf("%v: remembered %v", k.identity, remembered[i])
				}
			}
		})
	}
}
