package core

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/gate"
	"github.com/sashlimit/sash/core/internal/guard"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/store"
)

// Option changes a default of a limiter. Of an option that is given several times the last one counts, unless its
// documentation says that it adds up.
type Option func(*config)

type config struct {
	answers
	engine.Config

	gate      gateConfig
	shared    bool // the store was given, so other limiters may use it as well
	failLocal bool // FailLocal was asked for explicitly
	shadow    Policy
	given     []given // the options that a file of rules, or a limiter that exists, may refuse
	faults    faults
}

// gateConfig is what options set of a gate and of what limiters share.
type gateConfig struct {
	gate.Gate
	*shared
}

func (c *config) fault(option, value, problem, remedy string) {
	c.faults.add(true, option, value, problem, remedy)
}

// given is an option that was given.
type given struct {
	name    string
	answers bool   // it sets fields of answers, and no others
	inRules string // what a file of rules has in its place, or empty
}

// option makes an option of which nothing but the name is noted.
func option(name string, set Option) Option { return given{name: name}.option(set) }

func (g given) option(set Option) Option {
	return func(c *config) {
		c.given = append(c.given, g)
		set(c)
	}
}

// optionIf is option for a value that may be wrong, and is not set then.
func (g given) optionIf(isValid bool, value, problem, remedy string, set Option) Option {
	return g.option(func(c *config) {
		if !isValid {
			c.fault(g.name, value, problem, remedy)
			return
		}
		set(c)
	})
}

// optionWithin is option for a value that is least to most.
func optionWithin[T cmp.Ordered](name string, value, least, most T, problem, remedy string, set Option) Option {
	return given{name: name}.optionIf(least <= value && value <= most, fmt.Sprint(value), problem, remedy, set)
}

// calling makes an option whose value is a function that takes a C, or is missing.
func calling[C any](g given, missing bool, set Option) Option {
	return g.option(func(c *config) {
		if set(c); missing {
			c.fault(g.name, "nil", noFunction, giveOne)
			return
		}
		c.callbacks = append(c.callbacks, callbackOf[C](g.name))
	})
}

// configure applies opts to the defaults, and to how a limiter that exists answers, and collects all mistakes.
func configure(answered answers, opts []Option) config {
	answered.callbacks = slices.Clip(answered.callbacks) // others may use what is behind them
	c := config{
		answers: answered,
		Config: engine.Config{Guard: guard.Config{
			Failure: guard.Local, Label: "FailLocal", Timeout: 100 * time.Millisecond, DenyCache: time.Second,
			LocalKeys: 524_288,
		}},
	}
	c.gate.Prefixes, c.gate.shared = keys.Prefixes{V4: 32, V6: 64}, new(shared)
	for _, o := range opts {
		if o == nil {
			c.fault("Option", "nil", "the option is nil", "leave it out")
			continue
		}
		o(&c)
	}
	return c
}

// WithStore keeps the logs in store instead of in a [MemoryStore] that only this limiter uses. Limiters may share a
// store.
func WithStore(store Store) Option {
	return given{name: "WithStore"}.optionIf(!keys.IsNil(store), "nil", "the store is nil",
		"pass a store, such as redisstore.New(client), or leave the option out",
		func(c *config) { c.gate.store, c.shared = store, true })
}

// WithName names the policy: 1 to 48 of [a-z0-9._-]. The default name is made of its limits, such as "100-per-minute".
//
// Limiters with the same name, store and kind of key share their logs: what one admits, the others count. This gives
// several routes or processes one quota. Unnamed limiters with equal limits also share logs if they share a store, or
// use two stores of one Redis client; a warning in the log then names the limits of both at start-up. Give each its own
// name to keep them apart, or both the same name to share on purpose. Without [WithStore] each limiter has its own
// store.
//
// A name also keeps the logs of a policy when its limits change.
func WithName(name string) Option {
	g := given{name: "WithName", inRules: "domain in the file and name in a rule"}
	return g.optionIf(validPolicyName(name), strconv.Quote(name), "the name is not valid",
		fmt.Sprintf("use 1 to %d lower-case letters, digits, '.', '_' or '-'", maxPolicyName),
		func(c *config) { c.Policy = name })
}

// WithCost sets the function that returns how many units a request takes; the default is 1. A cost above a quota is
// denied, because it never fits. A cost below 1 is an error (500); use [WithSkip] for requests that cost nothing.
//
// Do not let a client choose its cost: take it from the route, not from a header.
func WithCost[C any](f func(C) int) Option {
	get := native[C]()
	return calling[C](given{name: "WithCost", inRules: "cost in a rule"}, f == nil, func(c *config) {
		c.gate.Cost = func(r adapter.Request) int { return f(get(r)) }
	})
}

// WithCostOf sets the function that returns how many units of a kind a request takes: see [Limit.Of]. A request that
// takes 0 is not limited by that unit. A cost below 0 is an error (500), and one above a quota is denied, because it
// never fits.
//
//	core.WithCostOf("tokens", func(r *http.Request) int { return estimate(r) })
//
// Middleware needs it for each unit that the limits count, except requests. The cost of work that is known only
// afterwards is corrected by [Decision.SettleCosts].
func WithCostOf[C any](unit string, f func(C) int) Option {
	get := native[C]()
	g := given{name: "WithCostOf", inRules: "costs in a rule"}
	return calling[C](g, f == nil, func(c *config) {
		if !limittext.ValidUnit(unit) {
			c.fault("WithCostOf", strconv.Quote(unit), "the unit is not valid", limittext.RemedyUnit)
			return
		}
		if c.gate.Costs == nil {
			c.gate.Costs = make(map[string]func(adapter.Request) int)
		}
		c.gate.Costs[unit] = func(r adapter.Request) int { return f(get(r)) }
	})
}

// WithSkip lets the requests for which f returns true pass uncounted and without header fields, such as health checks.
// Decide by the route's pattern, not by a prefix of the path, which clients can spell in many ways.
func WithSkip[C any](f func(C) bool) Option {
	get := native[C]()
	return calling[C](given{name: "WithSkip"}, f == nil, func(c *config) {
		c.gate.Skip = func(r adapter.Request) bool { return f(get(r)) }
	})
}

// WithAllowList lets requests pass uncounted if the list names their client. If k finds addresses, an entry is an
// address or a prefix, such as "10.0.0.0/8", regardless of [WithIPv4Prefix] and [WithIPv6Prefix]. Otherwise an entry is
// an identity as k returns it. k may differ from the key of the quota. Behind a proxy, use [ByForwardedIP] or the like:
// [ByIP] is the proxy's address there, and if the list names it, all its clients pass.
//
//	core.WithAllowList(core.ByIP(), "192.0.2.7", "2001:db8::/32")
//
// A request for which k returns [ErrNoKey] is on no list. Lists are checked before anything else. A client on an allow
// list and on a deny list is denied.
func WithAllowList(k Key, entries ...string) Option {
	return withList("WithAllowList", k, entries, true)
}

// WithDenyList refuses requests (403, [ErrForbidden]) if the list names their client; see [WithAllowList].
func WithDenyList(k Key, entries ...string) Option {
	return withList("WithDenyList", k, entries, false)
}

func withList(option string, k Key, entries []string, passes bool) Option {
	return func(c *config) {
		l, err := keys.NewList(option, k.spec, entries, passes)
		c.faults = append(c.faults, err)
		if l != nil {
			c.callbacks = append(c.callbacks, k.spec.Callbacks...)
			c.gate.Lists = append(c.gate.Lists, l)
		}
	}
}

// WithRefund gives back what a request has taken if f returns true. f is called after the handler has ended, with the
// status of the response: to count failed logins only, or not to count 304s or errors of your own.
//
//	core.WithRefund(func(_ *http.Request, status int) bool { return status < 400 })
//
// A request is charged before its handler runs, so a burst cannot exceed the quota meanwhile, and gets back exactly its
// own units, however long it took. The status is the one that was sent, also if the handler panics after that; a panic
// before that is status 500. A connection that the handler takes over, as for WebSocket, has status 101. An error that
// a handler returns has the status that the framework's error handler gives it; in fiber, the middleware calls that
// handler for this, once.
//
// A client that disconnects before the response makes many handlers fail. If no status or one of 500 and above was
// sent, the status then is 499 ([adapter.StatusClientClosedRequest]), so that a client cannot get a refund by
// disconnecting with status >= 500; with status >= 400, exclude it. A status below 500 stays, because a client that has
// only closed its sending side reads the response. fiber does not report that a client has disconnected, so there the
// status is the handler's.
func WithRefund[C any](f func(c C, status int) bool) Option {
	get := native[C]()
	return calling[C](given{name: "WithRefund"}, f == nil, func(c *config) {
		c.gate.refunds = func(r adapter.Request, status int) bool { return f(get(r), status) }
	})
}

// WithCountDenied records denied requests too, so that a client that keeps trying stays denied: for logins and other
// routes that are abused. The wait is over when no further request has come for as long as Retry-After says, which is
// exact. At most as many units are kept as the largest quota. Requests that cost more than a quota are not recorded,
// nor are those of [Limiter.Wait] while they wait.
//
// A denied request is recorded by the limits that have denied it. If clients share the key of such a limit, as that of
// an organisation ([Limit.By]), [Global] or one address, a single client that keeps trying keeps all of them out. Give
// such limits to another limiter, without this option.
func WithCountDenied() Option {
	return option("WithCountDenied", func(c *config) {
		c.gate.Mode = store.ModeChargeDenied
	})
}

// WithSpread gives each denied request a RetryAfter of its own. Without it all requests of a key that are denied get
// the instant of the first unit that will be free, so clients that obey come back together, and all but one are denied
// again. With it the first gets that instant, the next one that of the second unit, and so on; each unit is taken to be
// used again as soon as it is free. A request that would have to wait longer than most gets the first instant again; 0
// is twenty windows.
//
// Only RetryAfter and the field Retry-After change: a request that comes earlier takes what is free. If several limits
// have denied, RetryAfter is the latest of theirs. Each process hands out all units, so with three processes three
// clients come for each. Bans, overrides, permits of [InFlight] and [Limiter.Wait] have the waits that they have
// without it.
//
// While several requests wait for a log, it is listed once a second, so the store needs a method Log ([store.Lister]).
// Units of a log with more than about a thousand entries are taken to leave evenly. It does not suit [WithCountDenied],
// where each denial prolongs the wait.
func WithSpread(most time.Duration) Option {
	return given{name: "WithSpread"}.optionIf(most >= 0, most.String(), "the wait is negative",
		"pass the longest wait, or 0 for twenty windows", func(c *config) { c.Spread = &engine.Spread{Most: most} })
}

// WithShadow tries out another policy and reports what it would have decided to the observer: [Event].Shadow. It does
// not affect the decision. Its limits have logs of their own, of what it would have admitted alone, so they take as
// many writes and bytes again. It is asked at the same time, with the keys and costs that were read for the request,
// and not for requests that are listed, skipped, banned or denied by an override, nor while the store does not answer.
// Bans, overrides and leases are not part of it, and it has no [InFlight].
//
// What the handler gives back or settles is passed on. If the policy in force has denied and the shadow admits, nobody
// gives back what the shadow has taken: with [WithRefund] a looser shadow counts too much.
//
// If the [LimitBy] of a shadow returns wrong limits, the key of one of its limits fails, or the store does not answer,
// the observer gets an event with an error. A request that lacks such a key, and a call such as [Limiter.Allow] if the
// LimitBy needs a request, are not tried out, without an event.
func WithShadow(p Policy) Option {
	g := given{name: "WithShadow", inRules: "shadow: true in a rule"}
	return g.optionIf(!keys.IsNil(p), "nil", "the policy is nil",
		"pass a policy, such as core.PerMinute(100), or leave the option out", func(c *config) { c.shadow = p })
}

// WithOverrides makes a limiter look for overrides of its keys: see [Limiter.Override]. The store must keep them
// ([store.Overrider]), as a [MemoryStore] and those of packages redisstore and redisstream do.
//
// Overrides are read once a second while there are requests, so a decision asks the store no more often than without
// them. The first request after a second without any waits until they are read, for as long as [WithTimeout] at most,
// and then for its decision. While the store does not answer, those that were read last stay in force; a process that
// has just started, and could read none yet, decides without.
func WithOverrides() Option {
	return option("WithOverrides", func(c *config) { c.Overrides = true })
}

// WithIPv4Prefix sets how many bits of an IPv4 address distinguish clients: 8 to 32. The default is 32.
func WithIPv4Prefix(bits int) Option {
	return optionWithin("WithIPv4Prefix", bits, 8, 32, "the length is out of range", "choose 8 to 32 bits",
		func(c *config) { c.gate.Prefixes.V4 = bits })
}

// WithIPv6Prefix sets how many bits of an IPv6 address distinguish clients: 32 to 128. The default is 64, the smallest
// prefix that a subscriber has: with more bits, a client takes a new address for a new quota.
func WithIPv6Prefix(bits int) Option {
	return optionWithin("WithIPv6Prefix", bits, 32, 128, "the length is out of range", "choose 32 to 128 bits",
		func(c *config) { c.gate.Prefixes.V6 = bits })
}

// WithSecret makes identities in the store unreadable, even if they can be guessed: all of them, addresses included,
// are stored as HMACs under this secret of at least 16 bytes. All processes that share logs need the same secret. With
// another secret all quotas are unused, and overrides have no effect, because their names are others.
func WithSecret(secret []byte) Option {
	length := fmt.Sprintf("%d bytes", len(secret)) // the error must not contain the secret
	return given{name: "WithSecret"}.optionIf(len(secret) >= minSecret, length, "the secret has too few bytes",
		fmt.Sprintf("use at least %d random bytes; is the variable it comes from set?", minSecret),
		func(c *config) { c.Secret = slices.Clone(secret) })
}

const minSecret = 16
