package core

import (
	"context"
	"net/netip"
	"reflect"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/store"
)

// Key finds whose quota a request uses. There is no default, because whom to limit must be a deliberate choice.
//
// Keys of different kinds never name the same log: a user called "203.0.113.9" and the client at that address have
// separate logs.
type Key struct{ spec *keys.Spec }

// Spec is for packages of this module.
func (k Key) Spec() *keys.Spec { return k.spec }

// identity is whose quota a request draws from.
type identity = store.Identity

// By is the key that f returns for a request. f takes what handlers of your framework take: *http.Request,
// *gin.Context, echo.Context or *fiber.Ctx; or, with any framework, the request's context.Context, which does not have
// the values of c.Set and c.Locals.
//
//	core.By(func(r *http.Request) (string, error) { return tenantOf(r.Host) })
//
// An empty string or [ErrNoKey] means that there is no key: [First] tries its next key, and otherwise the request is
// refused (400). Any other error refuses it (500).
//
// Do not use a value that clients can choose freely, such as an unverified header: each new value has a new quota, so
// nothing is limited. For the address of a client use [ByAddr]: a text keeps each IPv6 address apart, of which a client
// has as many as it likes.
func By[C any](f func(C) (string, error)) Key {
	if f == nil {
		return Key{&keys.Spec{Fault: configError("By", "nil", noFunction,
			"pass a function that returns the key of a request")}}
	}
	find := finder(f)
	return Key{&keys.Spec{
		Name: "By", Kinds: []string{keys.KindBy}, Callbacks: []keys.Callback{callbackOf[C]("By")},
		Read: func(r adapter.Request, p *keys.Prefixes) (identity, error) {
			text, err := find(r)
			p.Warnings.TextUsed(r, text)
			return keys.Text(text, err)
		},
	}}
}

// ByAddr is the address that f returns for a request: one that other middleware has found, or your own code. f takes
// what the function of [By] takes.
//
//	core.ByAddr(func(r *http.Request) (netip.Addr, error) { return middleware.GetClientIPAddr(r.Context()), nil })
//
// It counts as that of [ByIP]: IPv6 clients are distinguished by their /64, and IPv4-mapped addresses count as IPv4.
// The zero Addr, an unspecified address and [ErrNoKey] mean that there is no key (400); any other error refuses the
// request (500). Do not use an address that clients can choose, such as the first one of X-Forwarded-For.
func ByAddr[C any](f func(C) (netip.Addr, error)) Key {
	if f == nil {
		return Key{&keys.Spec{Fault: configError("ByAddr", "nil", noFunction,
			"pass a function that returns the address of a client")}}
	}
	return Key{keys.ByAddr(finder(f), callbackOf[C]("ByAddr"))}
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
	return Key{keys.ByHeader(name, verify)}
}

// Unverified makes [ByHeader] take the value as it is. A client that sends a new value with each request then has a new
// quota each time, and one that sends another client's value uses up that client's quota. Use it only behind a proxy or
// gateway that has verified the header; otherwise limit by address as well, with a second limiter.
func Unverified(_ context.Context, value string) (string, error) { return value, nil }

// ByValue is the value that earlier middleware has stored under key: in the context of gin, echo or fiber (c.Set,
// c.Locals), or in the request's context (context.WithValue). It is a string or a whole number, also of a type of your
// own, or has a String method. A netip.Addr, netip.AddrPort, net.IP or net.Addr is an address as that of [ByIP], and
// its port is left out. Without such a value, or for a net.Addr that has no IP address, it is [ErrNoKey].
//
// The text of a call such as [Limiter.Allow] or [Limiter.Reset] is that of a value which is not an address. To name
// addresses, use [ByAddr].
func ByValue(key any) Key { return Key{keys.ByValue(key)} }

// ByText is the key of limiters without requests, whose calls name an identity as a text: [Limiter.Allow], Wait and the
// like. It finds what [By] finds, so middleware with By and a worker with ByText share logs under one [WithName]. No
// middleware can have it.
func ByText() Key { return Key{keys.ByText()} }

// Global is one quota for all requests together.
func Global() Key { return Key{keys.Global()} }

// Join combines several keys into one, for example for a quota for each user at each address. If a key returns an
// error, Join returns the first such error.
func Join(parts ...Key) Key { return Key{keys.Join(specsOf(parts))} }

// First is the first of several keys that a request has: for example its user if it is logged in, otherwise its
// address. If a key returns [ErrNoKey], the next one is tried; any other error refuses the request.
//
//	core.First(core.ByHeader("X-API-Key", lookUp), core.ByIP())
//
// Put a key that every request has last, such as [ByIP] or [Global]: keys after it are never tried. Keys after one that
// clients can choose freely have no effect either, because clients can always send that one.
func First(parts ...Key) Key { return Key{keys.First(specsOf(parts))} }

func specsOf(parts []Key) []*keys.Spec {
	specs := make([]*keys.Spec, len(parts))
	for i, part := range parts {
		specs[i] = part.spec
	}
	return specs
}

// ByIP is the address of the TCP peer. No header is read, because any client can write one. Behind a proxy, it is the
// proxy's address, and all its clients share one quota.
//
// IPv6 clients are distinguished by their /64, which is the smallest prefix that a subscriber has. IPv4-mapped
// addresses count as IPv4. A peer without an address, as on a Unix socket, is [ErrNoKey].
func ByIP() Key { return Key{keys.ByIP()} }

// ByForwardedIP is the client's address as trusted proxies report it in X-Forwarded-For. Each proxy appends the address
// that it received the request from. The list is read from its end, starting with the peer of the connection, up to the
// first address that is not a trusted proxy's. Everything before it was written by the client and is not read.
//
//	core.ByForwardedIP("10.0.0.0/8", "2001:db8:ffff::/48")
//
// Name the addresses and prefixes of your own proxies, and "unix" for a listener on a Unix socket. Trust nothing else:
// a client with a trusted address chooses its own key. A peer that is not trusted is the client itself, whatever header
// it sends. If a trusted proxy reports something that is not an address, the request's key is one that all such
// requests of this proxy share; it is not the proxy's own. Prefix lengths are those of [ByIP].
func ByForwardedIP(trusted ...string) Key { return Key{keys.ByForwardedIP(trusted)} }

// ByForwarded is [ByForwardedIP] for the Forwarded field of RFC 7239.
func ByForwarded(trusted ...string) Key { return Key{keys.ByForwarded(trusted)} }

// ByIPHeader is the client's address as a trusted proxy reports it in a header field with one address, such as
// CF-Connecting-IP. The proxy must overwrite what the client sends. See [ByForwardedIP] for trusted.
func ByIPHeader(name string, trusted ...string) Key { return Key{keys.ByIPHeader(name, trusted)} }

// finder returns a function that calls f with what it takes of a request.
func finder[C, T any](f func(C) (T, error)) func(adapter.Request) (T, error) {
	get, asksRequest := native[C](), reflect.TypeFor[C]() != contextType
	return func(r adapter.Request) (none T, err error) {
		if asksRequest && r.Native() == nil { // a call without a request reads the key of a limit
			return none, ErrNoKey
		}
		return f(get(r))
	}
}

func callbackOf[C any](option string) keys.Callback {
	return keys.Callback{Option: option, Type: reflect.TypeFor[C]()}
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
