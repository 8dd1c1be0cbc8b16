package core

// This file is for packages that adapt a framework or make keys: what package adapter cannot hold, because it builds an
// Option or a Key or binds a Limiter. Applications need none of it. [Limiter.Check], [Decision.Serve],
// [Decision.Response] and [Limiter.Report] belong to it as well.

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sashlimit/sash/core/adapter"
)

// NewFor is [New] for an adapter whose requests are C. Among the mistakes it
// reports are callbacks written for another framework.
func NewFor[C any](p Policy, k Key, opts ...Option) (*Limiter, error) {
	l, err := build(p, k, opts)
	if err := errors.Join(err, serves[C](l)); err != nil {
		return nil, err
	}
	return l, nil
}

// Bind prepares a limiter for an adapter whose requests are C: it checks that
// callbacks take a C and returns the handlers that answer denials and errors,
// which are the given ones unless the user set others; see [OnDeny].
func Bind[C, Deny, Fail any](l *Limiter, deny Deny, fail Fail) (Deny, Fail, error) {
	if l == nil || l.store == nil {
		return deny, fail, &ConfigError{Option: "From", Value: "nil", Reason: "make the limiter with core.New and look at its error"}
	}
	if err := serves[C](l); err != nil {
		return deny, fail, err
	}
	if h, ok := l.deny.(Deny); ok {
		deny = h
	}
	if h, ok := l.fail.(Fail); ok {
		fail = h
	}
	return deny, fail, nil
}

// OnDeny is for adapters: it carries the handler of a WithDeny, which answers denied
// requests in the framework's own way. C is what that framework calls a request.
func OnDeny[C, Deny any](handler Deny) Option {
	return func(c *config) {
		c.once("WithDeny")
		c.deny = handler
		c.callback("WithDeny", wantOf[C]("WithDeny"), isNil(handler))
	}
}

// OnError is for adapters: it carries the handler of a WithError, which answers requests
// that could not be decided.
func OnError[C, Fail any](handler Fail) Option {
	return func(c *config) {
		c.once("WithError")
		c.fail = handler
		c.callback("WithError", wantOf[C]("WithError"), isNil(handler))
	}
}

// KeyOf is for packages that find identities in requests of any framework, as
// package jwtkey does in tokens; for a key of your own use [By]. The kind, 1 to 16
// of [a-z], keeps its identities apart from those of other kinds; f gives a scope, such as who
// issued the identity, and its text. What f returns is used within the decision and copied where it is kept. [New] reports faults, for a package that
// makes a key of settings and cannot return an error: make them of [ConfigError]s.
func KeyOf(kind string, f func(adapter.Request) (scope, text string, err error), faults ...error) Key {
	if err := errors.Join(faults...); err != nil {
		return Key{fault: err}
	}
	if strings.Trim(kind, "abcdefghijklmnopqrstuvwxyz") != "" || kind == "" || len(kind) > 16 || slices.Contains(ownKinds, kind) || f == nil {
		return Key{fault: &ConfigError{Option: "KeyOf", Value: strconv.Quote(kind), Reason: fmt.Sprintf("a kind is 1 to 16 letters a-z, none of %v, and has a function", ownKinds)}}
	}
	return Key{name: kind, classes: []keyClass{{kind: kind, scope: anyScope}}, read: func(r adapter.Request,
		_ *prefixes) (identity, error) {
		scope, text, err := f(r)
		id, err := textIdentity(text, err)
		id.Kind, id.Scope = kind, scope
		return id, err
	}}
}
