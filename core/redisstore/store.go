package redisstore

import (
	"context"
	"slices"
	"time"

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
// is "sash". Use it to tell apart services that share a Redis.
func WithPrefix(prefix string) Option { return func(s *settings) { s.SetPrefix(prefix) } }

// WithOneServer says that all keys of the client are on one server. It is for clients of types that this package does
// not know, such as one that wraps a go-redis client to change its methods, or that of another driver. Their keys are
// otherwise taken to be on several servers: no script uses several of them, so takes do not go to the server together,
// and a request over several logs asks one after the other. For a cluster or a Ring the option is an error.
func WithOneServer() Option { return (*settings).SetOneServer }

// New makes a store of a client, which stays yours: its addresses, passwords, TLS and pool are as you set them, and you
// close it. Hooks that the client has when New is called see what the store sends. New does no I/O, so a program starts
// without its Redis. A wrong option or client is an error of [core.New], which asks the store to validate.
func New(client Client, opts ...Option) store.Store {
	s := &redisStore{Logs: newLogs(client, opts), undoTimeout: time.Second}
	s.WarnOfUnknownClient()
	return s
}

func newLogs(client Client, opts []Option) *redisclient.Logs {
	return redisclient.New(kind, client, opts)
}

var kind = &redisclient.Kind{Package: "redisstore", Begin: ":", NewFormat: newFormat, Needed: needed}

// redisStore is a store of logs in sorted sets.
type redisStore struct {
	*redisclient.Logs

	undoTimeout time.Duration // of removals of units, which go on when the caller's context has ended
}

// Validate returns the faults of the options: the store can serve all limits, any number of logs at once.
func (s *redisStore) Validate(...*store.Plan) error { return s.Logs.Validate() }

// Take decides in one step if one script may use all logs of the request, and otherwise asks one after the other.
func (s *redisStore) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	if err := store.ValidateTakes(takes, answers); err != nil {
		return err
	}
	cost := takes[0].Cost
	if err := redisclient.CheckCost(cost); err != nil {
		return err
	}
	keys, id, together, err := s.Logs.Take(ctx, takes, answers)
	if together {
		return err
	}
	r := inTurn{
		store: s, takes: takes, answers: answers, keys: keys, id: id, cost: cost, began: time.Now(),
	}
	return r.run(ctx)
}

func (s *redisStore) Settle(ctx context.Context, t store.Settlement) error {
	if err := redisclient.CheckCost(t.Cost); err != nil {
		return err
	}
	_, err := s.Run(ctx, settleScript, &t.Key, redisclient.IDText(t.ID), t.Cost)
	return err
}

func (s *redisStore) Log(ctx context.Context, key store.Key, window time.Duration) ([]store.Entry, error) {
	return s.List(ctx, entriesScript, key, window)
}

func (s *redisStore) Merge(ctx context.Context, m store.MergeRequest) error {
	return s.Logs.Merge(ctx, mergeScript, m)
}

// renewedAtOnce is how many takes one run of the script renews, so that it does not keep the server busy for long.
const renewedAtOnce = 500

// Renew implements [store.Renewer].
func (s *redisStore) Renew(ctx context.Context, r store.Renewal) error {
	if err := r.Key.Validate(); err != nil {
		return err
	}
	for part := range slices.Chunk(r.IDs, renewedAtOnce) {
		args := make([]any, 0, 1+len(part))
		args = append(args, redisclient.TTL(r.Keep))
		for _, id := range part {
			args = append(args, redisclient.IDText(id))
		}
		if _, err := s.Run(ctx, renewScript, &r.Key, args...); err != nil {
			return err
		}
	}
	return nil
}
