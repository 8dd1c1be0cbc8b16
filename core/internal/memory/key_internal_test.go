package memory

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core/store"
)

func text(ns *store.Namespace, scope, s string) *store.Key {
	return &store.Key{Namespace: ns, Identity: store.Identity{Kind: "by", Scope: scope, Text: s}}
}

// A stored key equals the key that was stored and no other, also where only a hash of it was stored.
func TestStored(t *testing.T) {
	var c classes
	x := strings.Repeat("x", longest)
	sum := sha256.Sum256([]byte(x + "a"))
	texts := []string{"", "a", strings.Repeat("x", 22), x, x + "a", x + "b", string(sum[:]), strings.Repeat("y", 9000)}
	ns := store.NewNamespace("p", "own", nil)
	for i, a := range texts {
		stored := c.stored(text(ns, "", a))
		if stored.heap() > longest {
			t.Errorf("%d bytes are kept of %d", stored.heap(), len(a))
		}
		for j, b := range texts {
			if names := stored.equal(text(ns, "", b)); names != (i == j) {
				t.Errorf("text %d names text %d: %v", i, j, names)
			}
		}
		for _, other := range []*store.Key{
			text(store.NewNamespace("q", "own", nil), "", a), text(store.NewNamespace("p", "by.a", nil), "", a),
			text(ns, "s", a),
		} {
			if stored.equal(other) {
				t.Errorf("text %d names %v", i, other.String())
			}
		}
		if !stored.equal(text(store.NewNamespace("p", "own", nil), "", a)) {
			t.Errorf("text %d does not name itself in another limiter of the same policy", i)
		}
	}
}

func TestStoredAddresses(t *testing.T) {
	var c classes
	ns := store.NewNamespace("p", "own", nil)
	var keys []store.Key
	for _, s := range []string{
		"192.0.2.1/32", "192.0.2.0/24", "::ffff:192.0.2.0/120", "2001:db8::/64", "2001:db8::/56",
	} {
		p := netip.MustParsePrefix(s)
		keys = append(keys,
			store.Key{Namespace: ns, Identity: store.Identity{Kind: "by", Addr: p.Addr(), Bits: p.Bits()}},
			*text(ns, "", s))
	}
	for i := range keys {
		for j := range keys {
			if stored := c.stored(&keys[i]); stored.equal(&keys[j]) != (i == j) {
				t.Errorf("%v names %v: %v", keys[i].String(), keys[j].String(), i != j)
			}
		}
	}
}

// Keys with more kinds and scopes than are remembered are told apart.
func TestManyClasses(t *testing.T) {
	var c classes
	ns := store.NewNamespace("p", "own", nil)
	for i := range 1000 {
		k, next := text(ns, fmt.Sprint(i%300), "a"), text(ns, fmt.Sprint(i%300+1), "a")
		if stored := c.stored(k); !stored.equal(k) || stored.equal(next) || stored.class.kind != "by" {
			t.Errorf("scope %s is not itself, or is %s", k.Scope, next.Scope)
		}
	}
}

// Two keys of one kind and scope share what they have in common.
func TestClassesAreShared(t *testing.T) {
	var c classes
	ns := store.NewNamespace("p", "own", nil)
	a, b := c.stored(text(ns, "s", "a")), c.stored(text(ns, "s", "b"))
	if a.class != b.class {
		t.Error("each key keeps its kind and scope")
	}
}
