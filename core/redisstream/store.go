package redisstream

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"

	"github.com/sashlimit/sash/core/internal/redisclient"
	"github.com/sashlimit/sash/core/store"
)

// Client is the part of a go-redis client that the store needs. *redis.Client, *redis.ClusterClient, *redis.Ring and
// failover clients have it. Clients of other types may need [WithOneServer].
type Client = redisclient.Client

// Option changes a store.
type Option func(*settings)

type settings = redisclient.Options

// WithPrefix sets the prefix of every key of the store, before a colon: 1 to 16 characters of [a-z0-9._-]. The default
// is "sash". Stores of package redisstore may have the same prefix: their keys differ nevertheless.
func WithPrefix(prefix string) Option {
	return func(s *settings) { s.Prefix, s.Prefixes = prefix, s.Prefixes+1 }
}

// WithOneServer says that all keys of the client are on one server. It is for clients of types that are unknown to this
// package, such as one that wraps a go-redis client to change its methods, or that of another driver. Takes on their
// keys do not go to the server together otherwise. For a cluster or a Ring the option is an error.
func WithOneServer() Option { return func(s *settings) { s.OneServer = true } }

// New makes a store of a client, which stays yours: its addresses, passwords, TLS and pool are as you set them, and you
// close it. Hooks that the client has when New is called see what the store sends. New does no I/O, so a program starts
// without its Redis. A wrong option or client is an error of [core.New], which asks the store to validate.
//
// [core.New]: https://pkg.go.dev/github.com/sashlimit/sash/core#New
func New(client Client, opts ...Option) store.Store {
	s := &streamStore{redisclient.New(kind, client, opts)}
	s.WarnOfUnknownClient()
	return s
}

// Check reports whether a store of the same client and options can work on its server, as [redisstore.Check] does.
//
// [redisstore.Check]: https://pkg.go.dev/github.com/sashlimit/sash/core/redisstore#Check
func Check(ctx context.Context, client Client, opts ...Option) error {
	return redisclient.New(kind, client, opts).Check(ctx)
}

var kind = &redisclient.Kind{
	Package: redisclient.Package{Name: "redisstream", Needed: []string{
		"TIME",
		"XADD key NOMKSTREAM 1-1 i value",
		"XDEL key 1-1",
		"XTRIM key MAXLEN 0",
		"PEXPIRE key 1",
		"PTTL key",
		"UNLINK key",
		"XLEN key",
		"XRANGE key - +",
		"XREVRANGE key + -",
		"INFO",
	}},
	Begin: ":s", NewFormat: newFormat,
	Entries: newScript("entries"), Merge: newScript("merge"), Reset: newScript("reset"),
}

//go:embed lua
var parts embed.FS

// The scripts. docs/internals.md describes their keys, arguments and replies in the section "A log in a stream".
var (
	takeScript   = newScript("take")
	settleScript = newScript("settle")
)

func newScript(name string) redisclient.Script { return redisclient.NewScript(parts, name) }

func newFormat(takes []store.Take) redisclient.Format {
	f, t := redisclient.NewFormat(takeScript, takes), &takes[0]
	f.AppendPlan(t, f.Grouped && !t.Plan.Varies && f.HasShortForm(t.Plan))
	f.Tail, f.Since = append(f.Tail, int64(0)), true
	return f
}

// streamStore is a store of logs in streams. It has no methods for what these cannot do, so that a limiter which needs
// them is not made.
type streamStore struct{ *redisclient.Logs }

func (s *streamStore) Validate(plans ...*store.Plan) error {
	return errors.Join(s.Logs.Validate(), checkPlans(plans))
}

func configError(value, problem, remedy string) error {
	return &store.ConfigError{Option: "redisstream", Value: value, Problem: problem, Remedy: remedy}
}

const oneLimit = "a stream has the log of one limit"

// checkPlans returns an error for what a stream cannot serve.
func checkPlans(plans []*store.Plan) error {
	switch len(plans) {
	case 0:
		return configError("limits of requests", oneLimit+", which is always the same",
			"use package redisstore where core.LimitBy or rules choose the limits")
	case 1:
		return checkPlan(plans[0])
	}
	return configError(strconv.Itoa(len(plans))+" logs", oneLimit,
		"make a limiter for each limit, or use package redisstore; limits with By or InFlight have logs of their own")
}

func checkPlan(p *store.Plan) error {
	switch {
	case p.Slots:
		return configError("requests in flight", "permits cannot be renewed in a stream",
			"give the limit core.InFlight to a limiter of its own, on a store of package redisstore")
	case p.Varies:
		return checkPlans(nil)
	case len(p.Deciding()) == 0:
		return configError("an override with Unlimited", "a stream records nothing without its limit",
			"override with a larger quota, or use package redisstore")
	case len(p.Limits) > 1, p.Shadow > 0:
		return configError(strconv.Itoa(len(p.Limits))+" limits", oneLimit,
			"make a limiter for each limit, or use package redisstore; core.WithBan and core.WithShadow add limits too")
	case p.Algorithm() != store.SlidingLog:
		return configError(p.Algorithm().String(), oneLimit,
			"use package redisstore where limits have other algorithms or follow the calendar")
	case p.Keep > p.Limits[0].Window:
		return configError("entries that stay for "+p.Keep.String(),
			"a stream keeps entries for the window of its limit, "+p.Limits[0].Window.String(),
			"use package redisstore")
	}
	return nil
}

func checkCost(cost int) error {
	if cost > 1 {
		return configError(fmt.Sprintf("a cost of %d", cost), "each entry of a stream is one unit",
			"use package redisstore where requests cost more")
	}
	return nil
}

func (s *streamStore) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	if err := store.ValidateTakes(takes, answers); err != nil {
		return err
	}
	if len(takes) > 1 {
		return checkPlans(make([]*store.Plan, len(takes)))
	}
	if err := cmp.Or(checkPlan(takes[0].Plan), checkCost(takes[0].Cost)); err != nil {
		return err
	}
	_, err := s.Logs.Take(ctx, takes, answers)
	return err
}

// Settle implements [store.Settler] for costs of 0 and 1. A take that is in the log costs 1 already.
func (s *streamStore) Settle(ctx context.Context, t store.Settlement) error {
	if err := checkCost(t.Cost); err != nil {
		return err
	}
	if t.Cost == 1 {
		return t.Key.Validate()
	}
	_, err := s.Run(ctx, settleScript, &t.Key, redisclient.IDText(t.ID))
	return err
}

// Merge implements [store.Merger] for entries of one unit.
func (s *streamStore) Merge(ctx context.Context, m store.MergeRequest) error {
	if m.Varies {
		return checkPlans(nil)
	}
	for i := range m.Entries {
		if err := checkCost(m.Entries[i].Cost); err != nil {
			return err
		}
	}
	return s.Logs.Merge(ctx, m)
}
