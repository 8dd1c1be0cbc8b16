package core

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/store"
)

// Option changes what a limiter does by default. To give one twice is an error, unless its documentation says that it adds
// up.
type Option func(*config)

type config struct {
	store         Store
	shared        bool // the store was given, so others may use it as well
	name          string
	headers       Headers
	prefixes      prefixes
	secret        []byte
	timeout       time.Duration
	failure       Failure
	failLocal     bool // ... was asked for
	denyCache     time.Duration
	failLocalKeys int
	mode          store.Mode
	shadow        Policy
	ban           *ban
	lists         []*list
	cost          func(adapter.Request) int
	skip          func(adapter.Request) bool
	refunds       func(adapter.Request, int) bool
	observers     []func(context.Context, Event)
	deny, fail    any
	wants         []want
	given         []string // options that may be given once
	faults        []error
}

const (
	maxPolicyName = 48
	minSecret     = 16
)

func (c *config) fault(option, value, reason string) {
	c.faults = append(c.faults, &ConfigError{Option: option, Value: value, Reason: reason})
}

// once reports a mistake if an option is given twice: the one given first would be without effect.
func (c *config) once(option string) {
	if slices.Contains(c.given, option) {
		c.fault(option, "twice", "give it once: each would replace the one before")
	}
	c.given = append(c.given, option)
}

// callback notes what a function given to option wants, or that it is missing.
func (c *config) callback(option string, w want, missing bool) {
	if missing {
		c.fault(option, "nil", "give it a function, or leave the option out")
		return
	}
	c.wants = append(c.wants, w)
}

// WithStore keeps the logs in store instead of in a [MemoryStore] of the
// limiter's own. Limiters may share a store.
func WithStore(store Store) Option {
	return func(c *config) {
		c.once("WithStore")
		if isNil(store) {
			c.fault("WithStore", "nil", "give it a store, such as redisstore.New(client), or leave the option out")
			return
		}
		c.store, c.shared = store, true
	}
}

// WithName names the policy: 1 to 48 of [a-z0-9._-]. The default is made of its
// limits, such as "100-per-minute".
//
// Limiters with the same name, store and kind of key share their logs: what one admits, the others count. That is
// how several routes or processes have one quota. Two limiters that are not named and have equal limits share them
// too where they share a store, also through two stores of one Redis client, and a warning in the log tells both
// places at start-up. Give each its own name to keep them apart, or both the same to say that they are to share.
// Without [WithStore] each has a store of its own.
//
// Name a policy as well to keep its logs when its limits change.
func WithName(name string) Option {
	return func(c *config) {
		c.once("WithName")
		if !validPolicyName(name) {
			c.fault("WithName", strconv.Quote(name), fmt.Sprintf("a name is 1 to %d lower-case letters, digits, '.', '_' or '-'", maxPolicyName))
			return
		}
		c.name = name
	}
}

func validPolicyName(s string) bool {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			return false
		}
	}
	return len(s) <= maxPolicyName && validName(s)
}

// WithCost is how many units a request takes; the default is 1. A cost above a
// quota is denied, as it can never pass. A cost below 1 is an error (500): to
// let a request pass for nothing use [WithSkip].
//
// Do not let a client choose its cost: take it from the route, not from a header.
func WithCost[C any](f func(C) int) Option {
	get := native[C]()
	return func(c *config) {
		c.once("WithCost")
		c.callback("WithCost", wantOf[C]("WithCost"), f == nil)
		c.cost = func(r adapter.Request) int { return f(get(r)) }
	}
}

// WithSkip lets requests pass uncounted and without header fields: health
// checks, say. Decide by the route's pattern rather than by what the path begins with,
// which clients can spell in many ways.
func WithSkip[C any](f func(C) bool) Option {
	get := native[C]()
	return func(c *config) {
		c.once("WithSkip")
		c.callback("WithSkip", wantOf[C]("WithSkip"), f == nil)
		c.skip = func(r adapter.Request) bool { return f(get(r)) }
	}
}

// WithRefund gives back what a request has taken when f says so, after the handler has ended
// with this status: to count failed logins only, or not to count 304s or errors of your own.
//
//	core.WithRefund(func(_ *http.Request, status int) bool { return status < 400 })
//
// A request is charged before its handler runs, so no burst slips through meanwhile, and gets exactly its own
// units back, however long it took. The status is the one that was sent, also where the handler panics after that;
// a panic before that is status 500. A connection that the handler takes over, as for WebSocket, has status 101. An
// error that a handler returns has the status that the framework's error handler gives it; in fiber that handler
// is called within the middleware for this, once.
//
// A client that leaves before the response makes many handlers fail. Instead of nothing or a status of 500 and above,
// the status then is 499 ([adapter.StatusClientClosedRequest]), so that with status >= 500 nobody gets a refund by hanging up; with
// status >= 400, exclude it. A status below 500 stays, because a client that has only closed its sending side reads the
// response. fiber does not tell that a client has left, so there the status is the handler's.
func WithRefund[C any](f func(c C, status int) bool) Option {
	get := native[C]()
	return func(c *config) {
		c.once("WithRefund")
		c.callback("WithRefund", wantOf[C]("WithRefund"), f == nil)
		c.refunds = func(r adapter.Request, status int) bool { return f(get(r), status) }
	}
}

// WithCountDenied records denied requests too, so that who keeps trying stays out: for logins and
// whatever is abused. The window then is full until so much time has passed without a try as Retry-After
// says, which is exact. At most as many units are kept as the largest quota. A request that costs more than
// a quota is not recorded, and neither are those of [Limiter.Wait] while they wait.
func WithCountDenied() Option {
	return func(c *config) {
		c.once("WithCountDenied")
		c.mode = store.ModeChargeDenied
	}
}

// WithShadow looks at another policy as well, on the same log and in the same question to the store,
// and tells the observer what it would have said: [Event].Shadow. It has no say. With it a limit can be
// tried on live traffic, which is what the policy in force lets through.
//
// Together they have at most 8 limits. A shadow whose [LimitBy] returns wrong limits is an
// event with an error, and the request is decided without it.
func WithShadow(p Policy) Option {
	return func(c *config) {
		c.once("WithShadow")
		if isNil(p) {
			c.fault("WithShadow", "nil", "give it a policy, such as core.PerMinute(100), or leave the option out")
			return
		}
		c.shadow = p
	}
}

// WithHeaders chooses the header fields of responses. The default is [HeadersDraft].
func WithHeaders(h Headers) Option {
	return func(c *config) {
		c.once("WithHeaders")
		if h < HeadersDraft || h > HeadersNone {
			c.fault("WithHeaders", strconv.Itoa(int(h)), "choose HeadersDraft, HeadersLegacy, HeadersBoth or HeadersNone")
			return
		}
		c.headers = h
	}
}

// WithIPv4Prefix is how many bits of an IPv4 address tell clients apart: 8 to
// 32. The default is 32.
func WithIPv4Prefix(bits int) Option {
	return func(c *config) {
		c.once("WithIPv4Prefix")
		if bits < 8 || bits > 32 {
			c.fault("WithIPv4Prefix", strconv.Itoa(bits), "a prefix is 8 to 32 bits long")
			return
		}
		c.prefixes.v4 = bits
	}
}

// WithIPv6Prefix is how many bits of an IPv6 address tell clients apart: 32 to
// 128. The default is 64, the least that one subscriber has: with more, a client takes
// a new address for a new quota.
func WithIPv6Prefix(bits int) Option {
	return func(c *config) {
		c.once("WithIPv6Prefix")
		if bits < 32 || bits > 128 {
			c.fault("WithIPv6Prefix", strconv.Itoa(bits), "a prefix is 32 to 128 bits long")
			return
		}
		c.prefixes.v6 = bits
	}
}

// WithSecret makes identities unreadable in the store even to who can guess
// them: all of them, addresses too, are HMACs under this secret of at least 16
// bytes. All processes that share logs need the same.
func WithSecret(secret []byte) Option {
	return func(c *config) {
		c.once("WithSecret")
		if len(secret) < minSecret {
			// Its value stays out of the message.
			c.fault("WithSecret", fmt.Sprintf("%d bytes", len(secret)), fmt.Sprintf("a secret has at least %d random bytes; is the variable it comes from set?", minSecret))
			return
		}
		c.secret = append([]byte(nil), secret...)
	}
}

// configure applies options over the defaults, collecting every mistake.
func configure(opts []Option) config {
	c := config{
		prefixes:      prefixes{v4: 32, v6: 64},
		timeout:       defaultTimeout,
		denyCache:     time.Second,
		failLocalKeys: defaultFailLocalKeys,
	}
	for _, o := range opts {
		if o == nil {
			c.fault("Option", "nil", "leave it out")
			continue
		}
		o(&c)
	}
	return c
}

// compile makes p ready for use, also where there are mistakes in it.
func (c *config) compile(p Policy) *policy {
	if isNil(p) {
		c.fault("policy", "nil", "say how much is allowed, such as core.PerMinute(100)")
		return new(policy)
	}
	compiled, err := p.compile()
	c.faults = append(c.faults, err)
	return compiled
}
