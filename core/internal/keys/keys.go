// Package keys finds whose quota requests use, and which clients are on a list. The functions of package core that
// return a Key document what each finds.
package keys

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/clientip"
	"github.com/sashlimit/sash/core/store"
)

// ErrNoKey means that a request has no key.
var ErrNoKey = errors.New("sash: the request carries no key")

// Spec is what a key does. Keys are the same if they have one Spec.
type Spec struct {
	Read func(adapter.Request, *Prefixes) (store.Identity, error)
	// FromText returns the identity that a text names, for calls without a request.
	FromText  func(string, *Prefixes) (store.Identity, bool)
	Callbacks []Callback
	Fault     error
	Name      string   // the function that made it, or the kind given to KeyOf
	Kinds     []string // of the identities that it finds; keys without a common kind never name the same log
	Scope     string   // of these identities, such as the name of a header field, if it is known before requests are

	NoRequests bool // it finds nothing in requests

	parts   []*Spec // of First and Join
	either  bool    // it may find addresses although they are none of its kinds: the type of a value tells
	foreign bool    // of KeyOf
}

// Callback is a callback's parameter type, which the adapter must be able to serve.
type Callback struct {
	Option string
	Type   reflect.Type
}

// Finds reports whether the key may find identities of a kind.
func (k *Spec) Finds(kind string) bool { return slices.Contains(k.Kinds, kind) }

// MayFind is Finds for a key whose callback may find addresses as well.
func (k *Spec) MayFind(kind string) bool { return k.Finds(kind) || k.either && kind == kindIP }

// Shares reports whether two keys may find identities of one kind.
func (k *Spec) Shares(other *Spec) bool { return slices.ContainsFunc(k.Kinds, other.Finds) }

// Keeps reports whether the key or a part of it may replace the context of a request.
func (k *Spec) Keeps() bool { return k.foreign || slices.ContainsFunc(k.parts, (*Spec).Keeps) }

// Repeats reports whether the key or a part of it was seen before. Addresses are read again, unless a callback finds
// them.
func (k *Spec) Repeats(seen map[*Spec]bool) bool {
	if len(k.parts) > 0 {
		return slices.ContainsFunc(k.parts, func(part *Spec) bool { return part.Repeats(seen) })
	}
	if seen[k] {
		return true
	}
	seen[k] = k.Callbacks != nil || !k.MayFind(kindIP)
	return false
}

// Identify sets the identity that a text names, for calls without a request. The error names the call.
func (k *Spec) Identify(id *store.Identity, call, text string, p *Prefixes) error {
	if k.FromText != nil {
		found, ok := k.FromText(text, p)
		if ok {
			*id = found
			return nil
		}
	}
	switch {
	case text != "" && k.Finds(KindBy):
		id.Kind, id.Text = KindBy, text
		return nil
	case text == "" && k.Finds(KindAll):
		*id = Everybody
		return nil
	case text == "":
		return ErrNoKey
	case k.Finds(KindAll) && k.parts == nil:
		return configError(call, "a text", "under Global there is one quota for all, and no text names it",
			"pass the empty text, or make the limiter with core.ByText()")
	}
	remedy := "pass a text that the key finds"
	if k.FromText == nil {
		remedy = "limit by core.By, whose keys are texts"
	}
	if call == "Override" || call == "Reset" {
		remedy = "use Decision." + call + " with the decision about a request, or " + remedy
	}
	return configError(call, "a text", k.Name+" finds no such key", remedy)
}

// ByHeader finds the identity that verify returns for a header field.
func ByHeader(name string, verify func(context.Context, string) (string, error)) *Spec {
	var fault error
	if !clientip.IsToken(name) {
		fault = configError("ByHeader", strconv.Quote(name), "this is not the name of a header field",
			`use letters, digits and '-', as in "X-API-Key"`)
	}
	if verify == nil {
		fault = errors.Join(fault, configError("ByHeader", strconv.Quote(name)+", nil", NoFunction,
			"pass a function that verifies the value, or core.Unverified to accept every value"))
	}
	scope := strings.ToLower(name)
	if scope == "host" {
		fault = errors.Join(fault, configError("ByHeader", strconv.Quote(name), "net/http removes Host from the header",
			"use By and the request's Host"))
	}
	return &Spec{
		Name: "ByHeader", Kinds: []string{"hdr"}, Scope: scope, Fault: fault,
		Read: func(r adapter.Request, _ *Prefixes) (store.Identity, error) {
			values := r.Header(name)
			if len(values) != 1 {
				return store.Identity{}, ErrNoKey
			}
			value := strings.Trim(values[0], " \t")
			if value == "" {
				return store.Identity{}, ErrNoKey
			}
			id, err := Text(verify(r.Context(), value))
			id.Kind, id.Scope = "hdr", scope
			return id, err
		},
		FromText: func(text string, _ *Prefixes) (store.Identity, bool) {
			return store.Identity{Kind: "hdr", Scope: scope, Text: text}, text != ""
		},
	}
}

// ByValue finds what earlier middleware has stored.
func ByValue(key any) *Spec {
	var fault error
	if key == nil || !reflect.TypeOf(key).Comparable() {
		fault = configError("ByValue", fmt.Sprintf("%T", key), "this cannot be a key of context values",
			`pass the key under which your middleware stores the value, such as "user"; for a function use By`)
	}
	return &Spec{
		Name: "ByValue", Kinds: []string{KindBy}, Fault: fault, either: true,
		Read: func(r adapter.Request, p *Prefixes) (store.Identity, error) {
			var text string
			switch v := r.Value(key).(type) {
			case string:
				text = v
			case netip.Addr:
				return p.address(v)
			case netip.AddrPort:
				return p.address(v.Addr())
			case net.IP:
				a, _ := netip.AddrFromSlice(v)
				return p.address(a)
			case net.Addr:
				if IsNil(v) {
					return store.Identity{}, ErrNoKey
				}
				return p.address(adapter.PeerAddr(v).Addr)
			case fmt.Stringer:
				if !IsNil(v) {
					text = v.String()
				}
			default:
				text = TextOf(v)
			}
			p.Warnings.TextUsed(r, text)
			return Text(text, nil)
		},
	}
}

// TextOf returns the text of a string or a whole number, of whatever type, or "". Floating-point numbers of 2^53 and
// above have none, because several numbers become one of them.
func TextOf(value any) string {
	switch v := reflect.ValueOf(value); {
	case v.Kind() == reflect.String:
		return v.String()
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10)
	case v.CanUint():
		return strconv.FormatUint(v.Uint(), 10)
	case v.CanFloat() && v.Float() == math.Trunc(v.Float()) && math.Abs(v.Float()) < 1<<53:
		return strconv.FormatInt(int64(v.Float()), 10)
	}
	return ""
}

// ByText finds what calls without a request name.
func ByText() *Spec {
	return &Spec{
		Name: "ByText", Kinds: []string{KindBy}, NoRequests: true,
		Read: func(adapter.Request, *Prefixes) (store.Identity, error) { return store.Identity{}, ErrNoKey },
	}
}

// Global finds [Everybody].
func Global() *Spec {
	return &Spec{
		Name: "Global", Kinds: []string{KindAll},
		Read: func(adapter.Request, *Prefixes) (store.Identity, error) { return Everybody, nil },
	}
}

// ByKind finds what f returns, for KeyOf.
func ByKind(kind string, f func(adapter.Request) (scope, text string, err error)) *Spec {
	letters := strings.Trim(kind, "abcdefghijklmnopqrstuvwxyz") == ""
	if !letters || kind == "" || len(kind) > 16 || slices.Contains(ownKinds, kind) || f == nil {
		return &Spec{Fault: configError("KeyOf", strconv.Quote(kind), "the kind is not valid, or the function is nil",
			fmt.Sprintf("use 1 to 16 letters a-z, and none of %v", ownKinds))}
	}
	return &Spec{
		Name: kind, foreign: true, Kinds: []string{kind},
		Read: func(r adapter.Request, _ *Prefixes) (store.Identity, error) {
			scope, text, err := f(r)
			id, err := Text(text, err)
			id.Kind, id.Scope = kind, scope
			return id, err
		},
	}
}

// Join finds what all keys find together.
func Join(keys []*Spec) *Spec {
	k := gather("Join", keys)
	k.Kinds = []string{"join"}
	k.Read = func(r adapter.Request, p *Prefixes) (store.Identity, error) {
		var buf [128]byte
		b := buf[:0]
		for _, part := range k.parts {
			id, err := part.ReadOnce(r, p)
			if err != nil {
				return store.Identity{}, err
			}
			b = id.AppendTuple(b)
		}
		return store.Identity{Kind: "join", Text: string(b)}, nil
	}
	return k
}

// First finds what the first key finds that a request has.
func First(keys []*Spec) *Spec {
	k := gather("First", keys)
	for _, part := range k.parts {
		k.Kinds = append(k.Kinds, part.Kinds...)
	}
	k.FromText = func(text string, p *Prefixes) (store.Identity, bool) {
		var first store.Identity
		for _, part := range k.parts {
			if part.FromText == nil {
				continue
			}
			id, ok := part.FromText(text, p)
			if ok && id.Addr.IsValid() { // an address is the most specific match
				return id, true
			}
			if ok && first.Kind == "" {
				first = id
			}
		}
		return first, first.Kind != ""
	}
	k.Read = func(r adapter.Request, p *Prefixes) (store.Identity, error) {
		err := ErrNoKey
		for _, part := range k.parts {
			var id store.Identity
			if id, err = part.ReadOnce(r, p); err == nil || !errors.Is(err, ErrNoKey) {
				return id, err
			}
		}
		return store.Identity{}, err
	}
	return k
}

// gather returns a key with the faults and callbacks of the keys within it, for New to check.
func gather(option string, keys []*Spec) *Spec {
	k := &Spec{Name: option}
	if len(keys) == 0 {
		k.Fault = configError(option, "", "there are no keys", "pass at least one")
	}
	for i, part := range keys {
		if part == nil {
			k.Fault = errors.Join(k.Fault, configError(option, fmt.Sprintf("key %d is empty", i+1), ZeroKey, MakeKey))
			continue
		}
		k.parts = append(k.parts, part)
		k.either = k.either || part.either
		k.Fault = errors.Join(k.Fault, part.Fault)
		k.Callbacks = append(k.Callbacks, part.Callbacks...)
	}
	return k
}

// The kinds of identities of the texts that a user's function returns, and of Global.
const (
	KindBy  = "by"
	KindAll = "all"
)

const (
	kindIP           = "ip"
	kindUnidentified = "ip-unidentified"
)

// Everybody is what Global finds.
var Everybody = store.Identity{Kind: KindAll, Text: "all"}

var ownKinds = []string{KindAll, KindBy, "hdr", kindIP, "join"}

// Text returns the identity of a text that a function has returned.
func Text(text string, err error) (store.Identity, error) {
	if err != nil {
		return store.Identity{}, err
	}
	if text == "" {
		return store.Identity{}, ErrNoKey
	}
	return store.Identity{Kind: KindBy, Text: text}, nil
}

// Prefixes are the lengths, in bits, of the prefixes by which clients are distinguished.
type Prefixes struct {
	V4, V6   int
	Warnings *Warnings // of the limiter, or nil
	Memo     *Memo     // of a request that may read a key more than once, or nil
}

// Full are prefixes that distinguish all addresses.
var Full = Prefixes{V4: 32, V6: 128}

// address returns the identity of an address, which need not be canonical.
func (p *Prefixes) address(a netip.Addr) (store.Identity, error) {
	if a = clientip.Canonical(a); !a.IsValid() {
		return store.Identity{}, ErrNoKey
	}
	return p.identity(kindIP, a), nil
}

func (p *Prefixes) identity(kind string, a netip.Addr) store.Identity {
	bits := p.V6
	if a.Is4() {
		bits = p.V4
	}
	prefix, _ := a.Prefix(bits) // no error, because New has checked the bits
	return store.Identity{Kind: kind, Addr: prefix.Addr(), Bits: bits}
}

// ReadOnce is Read, unless the request has read the key before, or a part of it.
func (k *Spec) ReadOnce(r adapter.Request, p *Prefixes) (store.Identity, error) {
	if p.Memo == nil || k.parts != nil {
		return k.Read(r, p)
	}
	id, err := p.Memo.read(k, r, p.Warnings)
	if id.Addr.IsValid() {
		id = p.identity(id.Kind, id.Addr)
	}
	return id, err
}

// Memo has the keys that a request has read, of addresses all bits. It is used again, and their texts may be in memory
// that a server uses again, so it is cleared after the request.
type Memo struct {
	reads []keyRead
	full  Prefixes
}

type keyRead struct {
	key *Spec
	id  store.Identity
	err error
}

func (m *Memo) read(k *Spec, r adapter.Request, c *Warnings) (store.Identity, error) {
	for i := range m.reads {
		if known := &m.reads[i]; known.key == k {
			return known.id, known.err
		}
	}
	m.full = Full
	m.full.Warnings = c
	id, err := k.Read(r, &m.full)
	m.reads = append(m.reads, keyRead{k, id, err})
	return id, err
}

// Clear forgets the request.
func (m *Memo) Clear() {
	clear(m.reads)
	*m = Memo{reads: m.reads[:0]}
}

// IsNil also reports whether v is a nil pointer, function or the like: a Store that holds a nil *T is not usable.
func IsNil(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Interface, reflect.Slice, reflect.Chan:
		return r.IsNil()
	}
	return false
}

// Problems and remedies of several errors.
const (
	NoFunction = "the function is nil"
	ZeroKey    = "the key is the zero Key"
	MakeKey    = "use ByIP, ByHeader, By or another function that returns a Key"
)

func configError(option, value, problem, remedy string) error {
	return &store.ConfigError{Option: option, Value: value, Problem: problem, Remedy: remedy}
}
