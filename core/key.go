package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/clientip"
	"github.com/sashlimit/sash/core/internal/setup"
	"github.com/sashlimit/sash/core/store"
)

// Key finds whose quota a request uses. There is no default, because whom to limit must be a deliberate choice.
//
// Keys of different kinds never name the same log: a user called "203.0.113.9" and the client at that address have
// separate logs.
type Key struct{ *keySpec }

// keySpec is what a key does. Keys are the same if they have one keySpec.
type keySpec struct {
	read func(adapter.Request, *prefixes) (identity, error)
	// fromText returns the identity that a text names, for calls without a request.
	fromText      func(string, *prefixes) (identity, bool)
	callbackTypes []callbackType
	fault         error
	parts         []*keySpec // of First and Join
	name          string     // the function that made it, or the kind given to KeyOf
	label         string     // in the names of logs, or empty: the name

	classes  []setup.KeyClass
	byPrefix bool // what it finds depends on prefixes
	foreign  bool // of KeyOf
}

// finds reports whether the key may find identities of a kind.
func (k *keySpec) finds(kind string) bool {
	return slices.ContainsFunc(k.classes, func(c setup.KeyClass) bool { return c.Kind == kind })
}

// LogName implements [plan.Key].
func (k *keySpec) LogName() string { return cmp.Or(k.label, strings.ToLower(k.name)) }

// By is the key that f returns for a request. f takes what handlers of your framework take: *http.Request,
// *gin.Context, echo.Context or *fiber.Ctx; or, with any framework, a context.Context.
//
//	core.By(func(r *http.Request) (string, error) { return tenantOf(r.Host) })
//
// An empty string or [ErrNoKey] means that there is no key: [First] tries its next key, and otherwise the request is
// refused (400). Any other error refuses it (500).
//
// Do not use a value that clients can choose freely, such as an unverified header: each new value has a new quota, so
// nothing is limited.
func By[C any](f func(C) (string, error)) Key {
	if f == nil {
		return Key{&keySpec{fault: configError("By", "nil", noFunction,
			"pass a function that returns the key of a request")}}
	}
	get, asksRequest := native[C](), reflect.TypeFor[C]() != contextType
	return Key{&keySpec{
		name: "By", classes: []setup.KeyClass{{Kind: kindBy}},
		callbackTypes: []callbackType{callbackTypeOf[C]("By")},
		read: func(r adapter.Request, _ *prefixes) (identity, error) {
			if asksRequest && r.Native() == nil { // a call without a request reads the key of a limit
				return identity{}, ErrNoKey
			}
			text, err := f(get(r))
			return textIdentity(text, err)
		},
	}}
}

// ByHeader is the identity that verify returns for the value of a request header. verify returns an error for a value
// that it does not accept.
//
//	core.ByHeader("X-API-Key", func(ctx context.Context, key string) (string, error) {
//		customer, ok := customers.ByAPIKey(ctx, key)
//		if !ok {
//			return "", core.ErrNoKey
//		}
//		return customer.ID, nil
//	})
//
// A header that is missing, empty or sent twice is [ErrNoKey], and so is one for which verify returns ErrNoKey. Any
// other error of verify, such as that of a database that does not answer, refuses the request (500). To use the value
// as it is, pass [Unverified].
func ByHeader(name string, verify func(context.Context, string) (string, error)) Key {
	var fault error
	if !clientip.IsToken(name) {
		fault = configError("ByHeader", strconv.Quote(name), "this is not the name of a header field",
			`use letters, digits and '-', as in "X-API-Key"`)
	}
	if verify == nil {
		fault = errors.Join(fault, configError("ByHeader", strconv.Quote(name)+", nil", noFunction,
			"pass a function that verifies the value, or core.Unverified to accept every value"))
	}
	scope := strings.ToLower(name)
	if scope == "host" {
		fault = configError("ByHeader", strconv.Quote(name), "net/http removes Host from the header",
			"use By and the request's Host")
	}
	return Key{&keySpec{
		name: "ByHeader", classes: []setup.KeyClass{{Kind: "hdr", Scope: scope}},
		fault: fault,
		read: func(r adapter.Request, _ *prefixes) (identity, error) {
			values := r.Header(name)
			if len(values) != 1 {
				return identity{}, ErrNoKey
			}
			value := strings.Trim(values[0], " \t")
			if value == "" {
				return identity{}, ErrNoKey
			}
			id, err := textIdentity(verify(r.Context(), value))
			id.Kind, id.Scope = "hdr", scope
			return id, err
		},
		fromText: func(text string, _ *prefixes) (identity, bool) {
			return identity{Kind: "hdr", Scope: scope, Text: text}, text != ""
		},
	}}
}

// Unverified makes [ByHeader] take the value as it is. A client that sends a new value with each request then has a new
// quota each time, and one that sends another client's value uses up that client's quota. Use it only behind a proxy or
// gateway that has verified the header; otherwise limit by address as well, with a second limiter.
func Unverified(_ context.Context, value string) (string, error) { return value, nil }

// ByValue is the value that earlier middleware has stored under key: in the context of gin, echo or fiber (c.Set,
// c.Locals), or in the request's context (context.WithValue). It is a string or a number or has a String method.
// Without a value it is [ErrNoKey].
func ByValue(key any) Key {
	return Key{&keySpec{
		name: "ByValue", classes: []setup.KeyClass{{Kind: kindBy}},
		read: func(r adapter.Request, _ *prefixes) (identity, error) {
			var text string
			switch v := r.Value(key).(type) {
			case string:
				text = v
			case fmt.Stringer:
				if !isNil(v) {
					text = v.String()
				}
			case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
				text = fmt.Sprint(v)
			}
			return textIdentity(text, nil)
		},
	}}
}

// Global is one quota for all requests together.
func Global() Key {
	return Key{&keySpec{
		name: "Global", classes: []setup.KeyClass{{Kind: kindAll}},
		read: func(adapter.Request, *prefixes) (identity, error) { return everybody, nil },
	}}
}

// Join combines several keys into one, for example for a quota for each user at each address. If a key returns an
// error, Join returns the first such error.
func Join(keys ...Key) Key {
	keys = slices.Clone(keys)
	k := gather("Join", keys)
	parts := make([][]setup.KeyClass, len(keys))
	for i := range keys {
		parts[i] = keys[i].classes
	}
	k.classes = []setup.KeyClass{{Kind: "join", Parts: parts}}
	k.read = func(r adapter.Request, p *prefixes) (identity, error) {
		var buf [128]byte
		b := buf[:0]
		for i := range keys {
			id, err := keys[i].readOnce(r, p)
			if err != nil {
				return identity{}, err
			}
			b = id.AppendTuple(b)
		}
		return identity{Kind: "join", Text: string(b)}, nil
	}
	return k
}

// First is the first of several keys that a request has: for example its user if it is logged in, otherwise its
// address. If a key returns [ErrNoKey], the next one is tried; any other error refuses the request.
//
//	core.First(core.ByHeader("X-API-Key", lookUp), core.ByIP())
//
// Keys after one that clients can choose freely have no effect, because clients can always send that one.
func First(keys ...Key) Key {
	keys = slices.Clone(keys)
	k := gather("First", keys)
	for i := range keys {
		k.classes = append(k.classes, keys[i].classes...)
	}
	k.fromText = func(text string, p *prefixes) (identity, bool) {
		var first identity
		for i := range keys {
			if keys[i].fromText == nil {
				continue
			}
			id, ok := keys[i].fromText(text, p)
			if ok && id.Addr.IsValid() { // an address is the most specific match
				return id, true
			}
			if ok && first.Kind == "" {
				first = id
			}
		}
		return first, first.Kind != ""
	}
	k.read = func(r adapter.Request, p *prefixes) (identity, error) {
		err := ErrNoKey
		for i := range keys {
			var id identity
			if id, err = keys[i].readOnce(r, p); err == nil || !errors.Is(err, ErrNoKey) {
				return id, err
			}
		}
		return identity{}, err
	}
	return k
}

// gather returns a key with the faults and callbacks of the keys within it, for New to check.
func gather(option string, keys []Key) Key {
	k := Key{&keySpec{name: option}}
	if len(keys) == 0 {
		k.fault = configError(option, "", "there are no keys", "pass at least one")
	}
	for i, part := range keys {
		if part.keySpec == nil {
			k.fault = errors.Join(k.fault, configError(option, fmt.Sprintf("key %d is empty", i+1), zeroKey, makeKey))
			keys[i].keySpec = new(keySpec)
			continue
		}
		k.parts = append(k.parts, part.keySpec)
		k.byPrefix = k.byPrefix || part.byPrefix
		k.fault = errors.Join(k.fault, part.fault)
		k.callbackTypes = append(k.callbackTypes, part.callbackTypes...)
	}
	return k
}

// identity is whose quota a request draws from.
type identity = store.Identity

const (
	kindIP           = "ip"
	kindUnidentified = "ip-unidentified"
)

const (
	kindBy  = "by"  // of the texts that a user's function returns
	kindAll = "all" // of Global
)

// everybody is what Global finds.
var everybody = identity{Kind: kindAll, Text: "all"}

var ownKinds = []string{kindAll, kindBy, "hdr", "ip", "join"}

func textIdentity(text string, err error) (identity, error) {
	if err != nil {
		return identity{}, err
	}
	if text == "" {
		return identity{}, ErrNoKey
	}
	return identity{Kind: kindBy, Text: text}, nil
}

// prefixes are the lengths, in bits, of the prefixes by which clients are distinguished.
type prefixes struct {
	v4, v6 int
	check  *setup.Requests // of the limiter, or nil
	memo   *keyMemo        // of a request that may read a key more than once, or nil
}

func (p *prefixes) identity(a netip.Addr) identity {
	bits := p.v6
	if a.Is4() {
		bits = p.v4
	}
	prefix, _ := a.Prefix(bits) // no error, because New has checked the bits
	return identity{Kind: kindIP, Addr: prefix.Addr(), Bits: bits}
}

// readOnce is read, unless the request has read the key before.
func (k *keySpec) readOnce(r adapter.Request, p *prefixes) (identity, error) {
	if p.memo == nil {
		return k.read(r, p)
	}
	for i := range *p.memo {
		if known := &(*p.memo)[i]; known.key == k && (!k.byPrefix || known.by == p) {
			return known.id, known.err
		}
	}
	id, err := k.read(r, p)
	*p.memo = append(*p.memo, keyRead{k, p, id, err})
	return id, err
}

// keyMemo has the keys that a request has read. It is used again, and their texts may be in memory that a server uses
// again, so it is cleared after the request.
type keyMemo []keyRead

type keyRead struct {
	key *keySpec
	by  *prefixes
	id  identity
	err error
}

// callbackType is a callback's parameter type, which the adapter must be able to serve.
type callbackType struct {
	option string
	typ    reflect.Type
}

func callbackTypeOf[C any](option string) callbackType {
	return callbackType{option, reflect.TypeFor[C]()}
}

var contextType = reflect.TypeFor[context.Context]()

// native returns a function that converts a request to the parameter type of a callback. Bind has checked that the
// adapter supports it; with an adapter that did not call Bind, the callback panics.
func native[C any]() func(adapter.Request) C {
	if reflect.TypeFor[C]() == contextType {
		// Native would be wrong here: gin's request is a context.Context too, but gin reuses it.
		//nolint:forcetypeassert // C is context.Context
		return func(r adapter.Request) C { return any(r.Context()).(C) }
	}
	return func(r adapter.Request) C { return r.Native().(C) } //nolint:forcetypeassert // Bind has checked it
}

// isNil also reports whether v is a nil pointer, function or the like: a Store that holds a nil *T is not usable.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Interface, reflect.Slice, reflect.Chan:
		return r.IsNil()
	}
	return false
}
