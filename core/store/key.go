package store

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
)

// Key names the log of one identity under one policy. Two of them name the same log exactly when their texts are
// equal; see [Key.String]. The zero Key names no log: stores refuse it.
type Key struct {
	_ [0]func() // compare the texts, not the structs

	Namespace *Namespace
	Identity
}

// NewKey returns the key of a text under a policy, for tests of stores. Two of them with equal policy and text name
// the same log.
func NewKey(policy, text string) Key {
	return Key{Namespace: NewNamespace(policy, "own", nil), Identity: Identity{Kind: "by", Text: text}}
}

// Validate returns an error for the zero Key, which names no log.
func (k *Key) Validate() error {
	if k.Namespace == nil {
		return configError("store.Key", "zero", "the zero Key names no log",
			"use store.NewKey, or the key of a limiter's Take")
	}
	return nil
}

// Clone returns a key that outlives the request it was read from, whose memory a server may use again.
func (k *Key) Clone() Key { return Key{Namespace: k.Namespace, Identity: k.Identity.Clone()} }

// Equal reports whether two keys have the same text.
func (k *Key) Equal(other *Key) bool {
	a, b := k.Namespace, other.Namespace
	return k.Identity == other.Identity && (a == b || a.name == b.name)
}

// Identity is whose log it is: an address, or a text within a kind and a scope.
type Identity struct {
	Kind  string     // such as "ip" or "by": of [a-z-]
	Scope string     // which header, for instance
	Text  string     // empty for an address
	Addr  netip.Addr // masked to Bits; not valid for a text
	Bits  int        // of an address, how many count
}

// Label is the identity for people: the text or the address itself.
func (id *Identity) Label() string {
	if id.Addr.IsValid() {
		var space [48]byte
		return string(appendAddr(space[:0], id.Addr, id.Bits))
	}
	return strings.Clone(id.Text) // it may be in memory that a server uses again
}

// Clone returns an identity that outlives the request.
func (id *Identity) Clone() Identity {
	c := *id
	c.Scope, c.Text = strings.Clone(id.Scope), strings.Clone(id.Text)
	return c
}

// AppendTuple appends the identity to b, different bytes for different identities: each part follows its length.
func (id *Identity) AppendTuple(b []byte) []byte {
	text := id.Text
	if id.Addr.IsValid() {
		text = string(appendAddr(nil, id.Addr, id.Bits))
	}
	for _, part := range [...]string{id.Kind, id.Scope, text} {
		b = strconv.AppendInt(b, int64(len(part)), 10)
		b = append(b, ':')
		b = append(b, part...)
	}
	return b
}

// Namespace is what the keys of one role under a policy have in common.
type Namespace struct {
	policy string
	name   string // policy and part
	secret []byte
	hash   uint64 // of the name
	recent atomic.Pointer[digest]
}

// NewNamespace returns the namespace of keys of a policy: of its own key, or of one that its label tells from others.
// The part is such as "own" or "by.organisation", of [a-z0-9._-]. With a secret, keys show no identity, not even an
// address.
func NewNamespace(policy, part string, secret []byte) *Namespace {
	name := policy + ":" + part
	return &Namespace{policy: policy, name: name, secret: secret, hash: maphash.String(seed, name)}
}

// Policy returns the policy's name.
func (n *Namespace) Policy() string { return n.policy }

// Name returns what the texts of its keys begin with, before a dot and the kind of the identity.
func (n *Namespace) Name() string { return n.name }

// seed is this process's own, so that nobody can choose keys whose hashes are equal.
var seed = maphash.MakeSeed()

// Hash is for finding keys within this process. Kind and scope have no part in it, because few keys differ in these
// alone.
func (k *Key) Hash() uint64 {
	if k.Addr.IsValid() {
		a := k.Addr.As16()
		return k.Namespace.hash ^ maphash.Bytes(seed, a[:])
	}
	return k.Namespace.hash ^ maphash.String(seed, k.Text)
}

// String is the key as text, out of [a-z0-9:._~-], so that it needs no quoting anywhere. It is
//
//	<policy>:own.ip:203.0.113.9
//	<policy>:by.organisation.jwt:3f4b...        (32 hexadecimal digits)
//
// A store keeps the logs of a key under names that begin with this text, and so on one server; what follows is
// [Limit.Log].
//
// An address stays readable unless the policy has a secret (core.WithSecret); every other identity is hashed (128 bits
// of SHA-256, or of HMAC-SHA-256 with a secret), so that no token, e-mail address or header of 8 KB lands in a
// database, its logs or its backups.
func (k Key) String() string { return string(k.AppendTo(make([]byte, 0, 112))) }

// AppendTo appends the text of String to b.
func (k *Key) AppendTo(b []byte) []byte {
	if k.Namespace == nil {
		return b
	}
	b = append(b, k.Namespace.name...)
	b = append(b, '.')
	b = append(b, k.Kind...)
	b = append(b, ':')
	if k.Addr.IsValid() && k.Namespace.secret == nil {
		return appendAddr(b, k.Addr, k.Bits)
	}
	if last := k.Namespace.recent.Load(); last != nil && last.of == k.Identity {
		return append(b, last.text[:]...)
	}
	b = k.appendDigest(b)
	if len(k.Text)+len(k.Scope) <= longestRemembered && rand.Uint32()%rememberDigest == 0 {
		next := &digest{of: k.Identity.Clone()}
		copy(next.text[:], b[len(b)-len(next.text):])
		k.Namespace.recent.Store(next)
	}
	return b
}

// digest is what an identity is hashed to. The latest is remembered, which saves a client that is busy with one key a
// twelfth of its time. Only one in rememberDigest of those not known is, so that keys which differ hardly pay for it.
type digest struct {
	of   Identity
	text [2 * digestLength]byte
}

const (
	digestLength      = 16
	rememberDigest    = 64
	longestRemembered = 64 // bytes
)

func (k *Key) appendDigest(b []byte) []byte {
	var space [256]byte
	tuple := k.AppendTuple(space[:0])
	if k.Namespace.secret == nil {
		sum := sha256.Sum256(tuple)
		return hex.AppendEncode(b, sum[:digestLength])
	}
	mac := hmac.New(sha256.New, k.Namespace.secret)
	mac.Write(bytes.Clone(tuple)) // otherwise tuple would be on the heap in either case
	return hex.AppendEncode(b, mac.Sum(nil)[:digestLength])
}

// appendAddr writes an address, and how much of it counts unless all of it does.
func appendAddr(b []byte, a netip.Addr, bits int) []byte {
	b = a.AppendTo(b)
	if bits < a.BitLen() {
		b = append(b, '_') // instead of a slash, which is not in the key's alphabet
		b = strconv.AppendInt(b, int64(bits), 10)
	}
	return b
}
