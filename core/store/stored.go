package store

import (
	"crypto/sha256"
	"hash/maphash"
	"net/netip"
	"strings"
)

// StoredKey is a [Key] for keeping in memory: it is short and outlives the request that the key was read from.
// Addresses and short texts lie within it, since each pointer that is followed may be a miss of the cache.
type StoredKey struct {
	class *class
	long  *string // a text that is not within
	form  form
	bits  uint8 // of an address, how many count
	size  uint8 // of a text that lies within
	bytes [21]byte
}

// Bytes returns how many bytes of memory the key takes apart from the StoredKey itself.
func (s *StoredKey) Bytes() int {
	if s.long == nil {
		return 0
	}
	return len(*s.long)
}

// class is what most keys of a namespace have in common. It is found in the cache, and kept once.
type class struct {
	namespace   *Namespace
	kind, scope string
}

func (k *Key) class() *class {
	hash := maphash.String(seed, k.Kind) ^ maphash.String(seed, k.Scope)
	at := &k.Namespace.classes[hash%uint64(len(k.Namespace.classes))]
	if c := at.Load(); c != nil && c.kind == k.Kind && c.scope == k.Scope {
		return c
	}
	c := &class{k.Namespace, k.Kind, strings.Clone(k.Scope)}
	at.Store(c)
	return c
}

type form uint8

const (
	formShort  form = iota // a text within bytes
	formLong               // a text
	formHashed             // a text's SHA-256
	formIPv4
	formIPv6
)

// longestText is how long texts may be that are kept in memory as they are.
const longestText = 64

// Stored returns the key for keeping. A text of more than 64 bytes becomes a hash unless it is wanted whole: then
// [StoredKey.Key] cannot give it back.
func (k *Key) Stored(whole bool) StoredKey {
	c := StoredKey{class: k.class()}
	switch {
	case k.Addr.IsValid():
		if c.form = formIPv6; k.Addr.Is4() {
			c.form = formIPv4
		}
		c.bits = uint8(k.Bits)
		a := k.Addr.As16()
		copy(c.bytes[:], a[:])
	case len(k.Text) <= len(c.bytes):
		c.size = uint8(copy(c.bytes[:], k.Text))
	case len(k.Text) <= longestText || whole:
		text := strings.Clone(k.Text)
		c.form, c.long = formLong, &text
	default:
		sum := sha256.Sum256([]byte(k.Text))
		text := string(sum[:])
		c.form, c.long = formHashed, &text
	}
	return c
}

// Equal reports whether a stored key names the same log as k.
func (s *StoredKey) Equal(k *Key) bool {
	if c := s.class; c.kind != k.Kind || c.scope != k.Scope ||
		c.namespace != k.Namespace && c.namespace.name != k.Namespace.name {
		return false
	}
	switch s.form {
	case formShort:
		return string(s.bytes[:s.size]) == k.Text && !k.Addr.IsValid()
	case formLong:
		return *s.long == k.Text
	case formHashed:
		sum := sha256.Sum256([]byte(k.Text))
		return len(k.Text) > longestText && *s.long == string(sum[:])
	case formIPv4, formIPv6:
	}
	return int(s.bits) == k.Bits && k.Addr.IsValid() && k.Addr.Is4() == (s.form == formIPv4) &&
		k.Addr.As16() == [16]byte(s.bytes[:16])
}

// Addr returns the address, which is not valid for a text. One of IPv4 is mapped to IPv6.
func (s *StoredKey) Addr() (a netip.Addr, ipv4 bool) {
	if s.form != formIPv4 && s.form != formIPv6 {
		return a, false
	}
	return netip.AddrFrom16([16]byte(s.bytes[:16])), s.form == formIPv4
}

// Key returns the key that was stored, unless its text was hashed.
func (s *StoredKey) Key() Key {
	k := Key{Namespace: s.class.namespace}
	k.Identity = Identity{Kind: s.class.kind, Scope: s.class.scope, Bits: int(s.bits)}
	switch s.form {
	case formShort:
		k.Text = string(s.bytes[:s.size])
	case formLong, formHashed:
		k.Text = *s.long
	case formIPv4:
		k.Addr = netip.AddrFrom4([4]byte(s.bytes[12:16]))
	case formIPv6:
		k.Addr = netip.AddrFrom16([16]byte(s.bytes[:16]))
	}
	return k
}
