package memory

import (
	"crypto/sha256"
	"hash/maphash"
	"strings"
	"sync/atomic"

	"github.com/sashlimit/sash/core/store"
)

// storedKey is a [store.Key] that is kept, without the request that it was read from. Addresses and short texts lie
// within it, since each pointer that is followed may be a miss of the cache.
type storedKey struct {
	class *class
	long  *string // a text that is not within
	form  form
	size  uint8 // of a text that lies within; of an address, how many bits count
	bytes [22]byte
}

// class is what most keys of a namespace have in common.
type class struct {
	namespace   *store.Namespace
	kind, scope string
}

// classes remembers what keys have in common, so that they need not keep it each. The zero value is ready for use.
type classes [64]atomic.Pointer[class]

func (c *classes) of(k *store.Key) *class {
	want := class{k.Namespace, k.Kind, k.Scope}
	at := &c[maphash.Comparable(seed, want)%uint64(len(c))]
	if known := at.Load(); known != nil && *known == want {
		return known
	}
	kept := &class{k.Namespace, k.Kind, strings.Clone(k.Scope)}
	at.Store(kept)
	return kept
}

type form uint8

const (
	short  form = iota // a text within bytes
	long               // a text
	hashed             // a text's SHA-256
	ipv4
	ipv6
)

// longest is how long texts may be that are kept as they are.
const longest = 64

// stored returns a key for keeping.
func (c *classes) stored(k *store.Key) storedKey {
	s := storedKey{class: c.of(k)}
	switch {
	case k.Addr.IsValid():
		if s.form = ipv6; k.Addr.Is4() {
			s.form = ipv4
		}
		s.size = uint8(k.Bits)
		a := k.Addr.As16()
		copy(s.bytes[:], a[:])
	case len(k.Text) <= len(s.bytes):
		s.size = uint8(copy(s.bytes[:], k.Text))
	case len(k.Text) <= longest:
		text := strings.Clone(k.Text)
		s.form, s.long = long, &text
	default:
		sum := sha256.Sum256([]byte(k.Text))
		text := string(sum[:])
		s.form, s.long = hashed, &text
	}
	return s
}

// equal reports whether a stored key names the same log as k.
func (s *storedKey) equal(k *store.Key) bool {
	if c := s.class; c.kind != k.Kind || c.scope != k.Scope ||
		c.namespace != k.Namespace && c.namespace.Name() != k.Namespace.Name() {
		return false
	}
	switch s.form {
	case short:
		return string(s.bytes[:s.size]) == k.Text && !k.Addr.IsValid()
	case long:
		return *s.long == k.Text
	case hashed:
		sum := sha256.Sum256([]byte(k.Text))
		return len(k.Text) > longest && *s.long == string(sum[:])
	case ipv4, ipv6:
	}
	return int(s.size) == k.Bits && k.Addr.IsValid() && k.Addr.Is4() == (s.form == ipv4) &&
		k.Addr.As16() == [16]byte(s.bytes[:16])
}

// heap returns how many bytes of memory the key takes apart from the storedKey itself.
func (s *storedKey) heap() int {
	if s.long == nil {
		return 0
	}
	return len(*s.long)
}
