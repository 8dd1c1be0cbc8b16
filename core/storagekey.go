package core

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

// StorageKey names the log of one identity under one policy. Two of them are
// equal as text exactly when they name the same log.
type StorageKey struct {
	_     [0]func() // compare the text, not the struct
	space *space
	identity
}

// space is what all keys of a limiter share.
type space struct {
	name   string // of the policy
	secret []byte // from WithSecret, or nil
	hash   uint64 // of the name
	recent atomic.Pointer[digest]

	families [8]atomic.Pointer[family] // by kind and scope
}

func newSpace(name string, secret []byte) *space {
	return &space{name: name, secret: secret, hash: maphash.String(seed, name)}
}

// seed is this process's own, so that nobody can choose keys whose hashes are equal.
var seed = maphash.MakeSeed()

// hash is for finding keys in this process. Kind and scope have no part in it: those who share a text are few.
func (k *StorageKey) hash() uint64 {
	if k.addr.IsValid() {
		a := k.addr.As16()
		return k.space.hash ^ maphash.Bytes(seed, a[:])
	}
	return k.space.hash ^ maphash.String(seed, k.text)
}

// longestText is how long texts may be that are kept in memory as they are.
const longestText = 64

// kept is a key for keeping: it outlives the request, and is short. Addresses and short texts lie
// within it, since each pointer followed may be a miss of the cache.
type kept struct {
	family *family
	long   *string // a text that is not within
	form   form
	bits   uint8 // of an address, how many count
	size   uint8 // of a text that lies within
	bytes  [21]byte
}

// family is what most keys of a space have in common. It is found in the cache, and kept once.
type family struct {
	space       *space
	kind, scope string
}

func (k *StorageKey) family() *family {
	at := &k.space.families[(maphash.String(seed, k.kind)^maphash.String(seed, k.scope))%uint64(len(k.space.families))]
	if f := at.Load(); f != nil && f.kind == k.kind && f.scope == k.scope {
		return f
	}
	f := &family{k.space, k.kind, strings.Clone(k.scope)}
	at.Store(f)
	return f
}

type form uint8

const (
	formShort  form = iota // a text within bytes
	formLong               // a text
	formHashed             // a text's SHA-256
	formIPv4
	formIPv6
)

// kept is the key for keeping. Texts that are very long become hashes unless they are wanted whole.
func (k *StorageKey) kept(whole bool) kept {
	c := kept{family: k.family()}
	switch {
	case k.addr.IsValid():
		if c.form = formIPv6; k.addr.Is4() {
			c.form = formIPv4
		}
		c.bits = uint8(k.bits)
		a := k.addr.As16()
		copy(c.bytes[:], a[:])
	case len(k.text) <= len(c.bytes):
		c.size = uint8(copy(c.bytes[:], k.text))
	case len(k.text) <= longestText || whole:
		text := strings.Clone(k.text)
		c.form, c.long = formLong, &text
	default:
		sum := sha256.Sum256([]byte(k.text))
		text := string(sum[:])
		c.form, c.long = formHashed, &text
	}
	return c
}

// names reports whether a kept key names the same log as another.
func (c *kept) names(o *StorageKey) bool {
	if f := c.family; f.kind != o.kind || f.scope != o.scope || f.space != o.space && f.space.name != o.space.name {
		return false
	}
	switch c.form {
	case formShort:
		return string(c.bytes[:c.size]) == o.text && !o.addr.IsValid()
	case formLong:
		return *c.long == o.text
	case formHashed:
		sum := sha256.Sum256([]byte(o.text))
		return len(o.text) > longestText && *c.long == string(sum[:])
	case formIPv4, formIPv6:
	}
	return int(c.bits) == o.bits && o.addr.IsValid() && o.addr.Is4() == (c.form == formIPv4) && o.addr.As16() == [16]byte(c.bytes[:16])
}

// key is what was kept, unless it was hashed.
func (c *kept) key() StorageKey {
	k := StorageKey{space: c.family.space, identity: identity{kind: c.family.kind, scope: c.family.scope, bits: int(c.bits)}}
	switch c.form {
	case formShort:
		k.text = string(c.bytes[:c.size])
	case formLong, formHashed:
		k.text = *c.long
	case formIPv4:
		k.addr = netip.AddrFrom4([4]byte(c.bytes[12:16]))
	case formIPv6:
		k.addr = netip.AddrFrom16([16]byte(c.bytes[:16]))
	}
	return k
}

// keyVersion changes with the meaning of what stores keep under a key.
const keyVersion = "1"

// String is the key as text: at most 110 characters out of [a-z0-9:._-], so that
// it needs no quoting anywhere and cannot choose a slot of a cluster. It is
//
//	1:<policy>:ip:203.0.113.9
//	1:<policy>:by:3f4b...        (32 hexadecimal digits)
//
// An address stays readable unless [WithSecret] is set; every other identity
// is hashed (128 bits of SHA-256, or of HMAC-SHA-256 with a secret), so that no
// token, e-mail or 8 KB header lands in a database, its logs or its backups.
func (k StorageKey) String() string { return string(k.AppendTo(make([]byte, 0, 112))) }

// AppendTo appends the text of String to b.
func (k *StorageKey) AppendTo(b []byte) []byte {
	if k.space == nil {
		return b
	}
	b = append(b, keyVersion+":"...)
	b = append(b, k.space.name...)
	b = append(b, ':')
	b = append(b, k.kind...)
	b = append(b, ':')
	if k.addr.IsValid() && k.space.secret == nil {
		return appendAddr(b, k.addr, k.bits)
	}
	if last := k.space.recent.Load(); last != nil && last.key.names(k) {
		return append(b, last.text[:]...)
	}
	b = k.appendDigest(b)
	if len(k.text)+len(k.scope) <= longestText && rand.Uint32()%rememberDigest == 0 {
		next := &digest{key: k.kept(false)}
		copy(next.text[:], b[len(b)-len(next.text):])
		k.space.recent.Store(next)
	}
	return b
}

// digest is what an identity is hashed to. The latest is remembered, which saves a client that is busy with one key a
// twelfth of its time. Only one in rememberDigest of those that were not known is, so that keys which differ hardly pay for it.
type digest struct {
	key  kept
	text [2 * digestLength]byte
}

const (
	digestLength   = 16
	rememberDigest = 64
)

func (k *StorageKey) appendDigest(b []byte) []byte {
	var space [256]byte
	tuple := k.appendTuple(space[:0])
	if k.space.secret == nil {
		sum := sha256.Sum256(tuple)
		return hex.AppendEncode(b, sum[:digestLength])
	}
	mac := hmac.New(sha256.New, k.space.secret)
	mac.Write(bytes.Clone(tuple)) // or it would be on the heap in either case
	return hex.AppendEncode(b, mac.Sum(nil)[:digestLength])
}

// appendAddr writes an address, and how much of it counts unless all of it does.
func appendAddr(b []byte, a netip.Addr, bits int) []byte {
	b = a.AppendTo(b)
	if bits < a.BitLen() {
		b = append(b, '_') // what a slash would say, within the key's alphabet
		b = strconv.AppendInt(b, int64(bits), 10)
	}
	return b
}
