package store

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

// A stored key equals the key that was stored and no other, also where only a hash of it was stored.
func TestStoredKeys(t *testing.T) {
	long := strings.Repeat("x", longestText)
	sum := sha256.Sum256([]byte(long + "a"))
	texts := []string{"", "a", long, long + "a", long + "b", string(sum[:]), strings.Repeat("y", 9000)}
	sp := NewNamespace("p", nil)
	key := func(text string) *Key {
		return &Key{Namespace: sp, Identity: Identity{Kind: "by", Text: text}}
	}
	for i := range 50 { // more classes than a namespace remembers
		k := &Key{Namespace: sp, Identity: Identity{Kind: "by", Scope: fmt.Sprint(i % 25), Text: "a"}}
		next := &Key{Namespace: sp, Identity: Identity{Kind: "by", Scope: fmt.Sprint(i%25 + 1), Text: "a"}}
		if stored := k.Stored(false); stored.Key().Identity != k.Identity || !stored.Equal(k) || stored.Equal(next) {
			t.Errorf("scope %s became %v", k.Scope, stored.Key().Identity)
		}
	}
	for i, a := range texts {
		stored, whole := key(a).Stored(false), key(a).Stored(true)
		if stored.long != nil && len(*stored.long) > longestText {
			t.Errorf("%d bytes are kept of %d", len(*stored.long), len(a))
		}
		if got := whole.Key(); got.Identity != key(a).Identity || got.Namespace != sp {
			t.Errorf("text %d became %v", i, got.Identity)
		}
		for j, b := range texts {
			if names := stored.Equal(key(b)); names != (i == j) || names != whole.Equal(key(b)) {
				t.Errorf("text %d names text %d: %v", i, j, names)
			}
		}
		other := key(a)
		other.Namespace = NewNamespace("q", nil)
		if stored.Equal(other) {
			t.Errorf("text %d names another policy's", i)
		}
		other.Namespace, other.Scope = NewNamespace("p", nil), "s"
		if stored.Equal(other) {
			t.Errorf("text %d names another scope's", i)
		}
		if other.Scope = ""; !stored.Equal(other) {
			t.Errorf("text %d does not name itself in another limiter of the same policy", i)
		}
	}
}

// A remembered digest belongs to its own key, whatever other keys are hashed concurrently.
func TestRememberedDigests(t *testing.T) {
	for name, secret := range map[string][]byte{"SHA-256": nil, "HMAC": []byte("a secret of sixteen bytes")} {
		t.Run(name, func(t *testing.T) {
			sp := NewNamespace("p", secret)
			var keys []Key
			for _, text := range []string{
				"", "a", "b", "a longer text than what lies within a stored key",
				strings.Repeat("x", longestText), strings.Repeat("x", longestText+1),
				strings.Repeat("x", longestText) + "y",
			} {
				for _, kind := range []string{"by", "hdr"} {
					for _, scope := range []string{"", "x-api-key"} {
						id := Identity{Kind: kind, Scope: scope, Text: text}
						keys = append(keys, Key{Namespace: sp, Identity: id})
					}
				}
			}
			// Without a secret addresses are not hashed.
			for _, a := range []string{
				"192.0.2.1/32", "192.0.2.0/24", "::ffff:192.0.2.1/128", "2001:db8::/64", "2001:db8::/56",
			} {
				p := netip.MustParsePrefix(a)
				keys = append(keys,
					Key{Namespace: sp, Identity: Identity{Kind: "ip", Addr: p.Addr(), Bits: p.Bits()}},
					Key{Namespace: sp, Identity: Identity{Kind: "ip", Text: a}})
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
						got, want := k.String(), string(k.appendDigest(fmt.Append(nil, "1:p:", k.Kind, ":")))
						if k.Addr.IsValid() && secret == nil {
							want = string(appendAddr([]byte("1:p:ip:"), k.Addr, k.Bits))
						}
						if got != want {
							t.Errorf("%v is %s, not %s", k.Identity, got, want)
							return
						}
						if last != nil && last.key.Equal(k) {
							mu.Lock()
							remembered[i] = true
							mu.Unlock()
						}
					}
				})
			}
			wait.Wait()
			for i, k := range keys {
				want := len(k.Text)+len(k.Scope) <= longestText && (secret != nil || !k.Addr.IsValid())
				if remembered[i] != want {
					t.Errorf("%v: remembered %v", k.Identity, remembered[i])
				}
			}
		})
	}
}

// Kind, scope and text are told apart although they follow each other.
func TestTuplesAreInjective(t *testing.T) {
	seen := make(map[string]Identity)
	for _, id := range []Identity{
		{Kind: "hdr", Scope: "x-a", Text: "bc"}, {Kind: "hdr", Scope: "x-ab", Text: "c"}, {Kind: "hdr", Text: "x-abc"},
		{Kind: "hd", Scope: "rx-a", Text: "bc"}, {Kind: "hdr", Scope: "x-abc"},
		{Kind: "hdr", Scope: "x-a", Text: "b:c"}, {Kind: "hdr", Scope: "x-a:", Text: "bc"},
		{Kind: "hdr", Scope: "x-a:b", Text: "c"},
	} {
		key := (&Key{Namespace: NewNamespace("p", nil), Identity: id}).String()
		if other, ok := seen[key]; ok {
			t.Errorf("%v and %v have the key %s", id, other, key)
		}
		seen[key] = id
	}
}
