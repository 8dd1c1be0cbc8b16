// Package adapter has what packages for web frameworks share: how a limiter reads a request, and how it is answered. An
// application needs it only if it limits a framework that has no package yet. The functions that build a limiter for a
// framework are in package core: NewFor, Bind, OnDeny and OnError; docs/internals.md lists what a new adapter has to
// do.
package adapter

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Request is what an adapter shows of a request in progress. If a framework's contexts do not end when a client leaves,
// the type also has a method Gone() bool, which is called instead.
//
// A call to the store may outlast the request. If a framework reuses the memory of a request, as fasthttp does, its
// Context must therefore stay valid, and its Header return copies.
type Request interface {
	Context() context.Context
	Peer() Peer
	Header(name string) []string // all field lines, in the order in which they came
	Value(key any) any           // the value that earlier middleware has stored under key
	Native() any                 // the framework's own request, the parameter of callbacks that users write for it
}

// ContextSetter is a [Request] whose context can be replaced. Later callbacks and the handlers behind the limiter get
// what a key has stored in the context, such as the claims of package jwtkey.
type ContextSetter interface {
	Request
	SetContext(ctx context.Context)
}

// Target is what a request asks for.
type Target struct {
	Method string
	Host   string // as the client has sent it, so there may be a port
	Path   string // decoded

	// RawPath is the path as the client has sent it, unless that is the usual encoding of Path; then it may be empty.
	RawPath string

	// Routed is the path that earlier middleware has left for the router, encoded or not, unless that is Path or
	// RawPath; then it may be empty.
	Routed string

	AnyCase  bool // the framework serves /Login as /login
	AnySlash bool // and /login/ as /login
	AnyRest  bool // and, by a route for all that is below /static/, /static
	AnyEnd   bool // later middleware may make it serve /login/ and /login.json as /login
}

// Explainer is a *rules.Set of package rules, which adapters do not depend on. E is rules.Explanation.
type Explainer[E any] interface {
	Explain(r Request) E
}

// Targeter is a [Request] with a target, which rules match (package rules).
type Targeter interface {
	Request
	Target() Target
}

// TargetOf returns the target of a net/http request.
func TargetOf(r *http.Request) Target {
	return Target{Method: r.Method, Host: r.Host, Path: r.URL.Path, RawPath: r.URL.RawPath}
}

// RestOfPath returns raw, or if the route ends in a parameter as /users/:id does, the path as it was sent with slashes
// encoded from that segment on. It is for routers whose last parameter has the rest of the path, as echo's, so that
// /users/:id serves /users/7/x as well. raw is the RawPath of u; if that is empty, its encoded path was sent.
func RestOfPath(route, raw string, u *url.URL) string {
	last := strings.LastIndexByte(route, '/') + 1
	segment := strings.Count(route, "/")
	if last == 0 || !strings.HasPrefix(route[last:], ":") || raw == "" && strings.Count(u.Path, "/") <= segment {
		return raw
	}
	sent := cmp.Or(raw, u.EscapedPath())
	for i := range len(sent) {
		if sent[i] != '/' {
			continue
		}
		if segment--; segment < 0 {
			return sent[:i] + strings.ReplaceAll(sent[i:], "/", "%2F")
		}
	}
	return raw
}

// Peer is the other end of the connection that a request came over.
type Peer struct {
	Addr netip.Addr // not valid where there is none, as on a Unix socket
	Unix bool       // the listener is a Unix socket

	// Rewritten reports that the address has no port. Servers always write one, so other middleware has replaced the
	// address, or the request has come through a serverless gateway.
	Rewritten bool
}

// PeerOf returns the peer of a net/http request. RemoteAddr may carry a port, as the server writes it, or be a bare
// address.
func PeerOf(r *http.Request) Peer {
	if a, port := ParseAddr(r.RemoteAddr); a.IsValid() {
		return Peer{Addr: a, Rewritten: !port}
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return Peer{Unix: ok && strings.HasPrefix(local.Network(), "unix")}
}

// PassBack is for adapters on net/http, deferred where a request may be copied, as with another context. It gives the
// server's own request what handlers have left in the copy: the route's pattern, which middleware in front names spans
// and metrics by, and the form, whose files the server removes.
func PassBack(own, copied *http.Request) {
	if own.Pattern != copied.Pattern {
		own.Pattern = copied.Pattern
	}
	if own.MultipartForm == nil {
		own.MultipartForm = copied.MultipartForm
	}
}

// PeerAddr returns the peer with the address of a connection.
func PeerAddr(a net.Addr) Peer {
	switch a := a.(type) {
	case *net.TCPAddr: // without its text, which would be made for each request
		return Peer{Addr: specified(a.AddrPort().Addr())}
	case nil:
		return Peer{}
	}
	addr, _ := ParseAddr(a.String())
	return Peer{Addr: addr, Unix: strings.HasPrefix(a.Network(), "unix")}
}

// LongestAddr is the length of the longest text that [ParseAddr] reads: "[", an IPv6 address with its zone, "]:" and a
// port.
const LongestAddr = 64

// ParseAddr reads an address with or without brackets and port, and reports whether there was a port. It returns the
// zero Addr for text that is not an address, and for the unspecified address, which no client has.
func ParseAddr(s string) (a netip.Addr, port bool) {
	if len(s) > LongestAddr { // an error would quote it
		return a, false
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		a, port = ap.Addr(), true
	} else if bare, ok := strings.CutPrefix(s, "["); ok && strings.HasSuffix(bare, "]") {
		if a, err = netip.ParseAddr(bare[:len(bare)-1]); err != nil || !a.Is6() {
			return netip.Addr{}, false
		}
	} else if a, err = netip.ParseAddr(s); err != nil {
		return netip.Addr{}, false
	}
	a = specified(a)
	return a, port && a.IsValid()
}

// specified returns the address unless it is the unspecified one, which is nobody's.
func specified(a netip.Addr) netip.Addr {
	if a.Unmap().WithZone("").IsUnspecified() {
		return netip.Addr{}
	}
	return a
}

// Must returns what an adapter's New has made, or panics with the error.
func Must[T any](made T, err error) T {
	if err != nil {
		panic(err) //nolint:forbidigo // documented by adapters: a mistake of the program
	}
	return made
}

// Bound returns what core.Bind has, or panics with the error.
func Bound[Deny, Fail any](deny Deny, fail Fail, err error) (Deny, Fail) {
	Must(0, err)
	return deny, fail
}

// HeaderMap is the header of a response. http.Header is one. If it has a method Del(name string), as http.Header has, a
// limiter removes what it has to replace of the fields of an outer limiter.
type HeaderMap interface {
	Get(name string) string
	Set(name, value string)
}

// ErrorWithCause returns an error with the text of err in which [errors.As] finds err and cause. So a framework's error
// handler finds its own type with the status, and clients get only its text.
func ErrorWithCause(err, cause error) error { return &caused{err, cause} }

type caused struct{ err, cause error }

func (c *caused) Error() string   { return c.err.Error() }
func (c *caused) Unwrap() []error { return []error{c.err, c.cause} }

// IsRefusal reports whether a user's handler has returned the refusal that it was called for: the cause, or an error of
// type Limited, which is *core.LimitedError. An error of type Status around it, which has a status of its own, is not a
// refusal. A refusal leaves the answer to the limiter.
func IsRefusal[Status, Limited any](err, cause error) bool {
	if err == nil || errors.As(err, new(Status)) {
		return false
	}
	return errors.As(err, new(Limited)) || errors.Is(err, cause)
}
