package redisstore

import (
	"context"
	"embed"
	"slices"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/internal/redisclient"
	"github.com/sashlimit/sash/core/store"
)

// Client is the part of a go-redis client that the store needs. *redis.Client, *redis.ClusterClient, *redis.Ring and
// failover clients have it. Clients of other types may need [WithOneServer].
type Client = redisclient.Client

// The Class of each [core.StoreError] of this store and of those of package redisstream.
const (
	ClassTimeout  = redisclient.ClassTimeout  // "timeout": no reply in time
	ClassCanceled = redisclient.ClassCanceled // "canceled": the caller has given up
	ClassRefused  = redisclient.ClassRefused  // "refused": no connection, or it ended before the reply
	ClassPool     = redisclient.ClassPool     // "pool": the client has no free connection, or was closed
	ClassAuth     = redisclient.ClassAuth     // "auth": another login is wanted, or the user lacks a permission
	ClassReadOnly = redisclient.ClassReadOnly // "read-only": no writes: a replica, or it cannot save or lacks replicas
	ClassCluster  = redisclient.ClassCluster  // "cluster": it is down or moves slots, or the client is wrong
	ClassBusy     = redisclient.ClassBusy     // "busy": the server loads its data, or runs another program's script
	ClassOOM      = redisclient.ClassOOM      // "oom": the server is out of memory
	ClassScript   = redisclient.ClassScript   // "script": the server does not run the scripts
	ClassType     = redisclient.ClassType     // "type": the key holds another type; the only class with OneKey
	ClassProtocol = redisclient.ClassProtocol // "protocol": the reply is not one of the scripts', or TLS fails
)

// Option changes a store.
type Option func(*settings)

type settings = redisclient.Options

// WithPrefix sets the prefix of every key of the store, before a colon: 1 to 16 characters of [a-z0-9._-]. The default
// is "sash". Use it to separate services that share a Redis.
func WithPrefix(prefix string) Option {
	return func(s *settings) { s.Prefix, s.Prefixes = prefix, s.Prefixes+1 }
}

// WithOneServer says that all keys of the client are on one server. It is for clients of types that are unknown to this
// package, such as one that wraps a go-redis client to change its methods, or that of another driver. Their keys are
// otherwise assumed to be on several servers: no script uses several of them, so takes do not go to the server
// together, and a request over several logs asks one after the other. For a cluster or a Ring the option is an error.
func WithOneServer() Option { return func(s *settings) { s.OneServer = true } }

// New makes a store of a client, which stays yours: its addresses, passwords, TLS and pool are as you set them, and you
// close it. Hooks that the client has when New is called see what the store sends. New does no I/O, so a program starts
// without its Redis. A wrong option or client is an error of [core.New], which asks the store to validate.
func New(client Client, opts ...Option) store.Store {
	s := &redisStore{Logs: redisclient.New(kind, client, opts), undoTimeout: time.Second}
	s.WarnOfUnknownClient()
	return s
}

// Check reports whether a store of the same client and options can work on its server, for example when a program
// starts. It returns all problems that it finds, each with a remedy: a server that cannot be reached, is too old,
// evicts keys, is a read-only replica, or is part of a cluster behind a plain client; commands that are renamed, that
// scripts may not call, or that the user may not run. Of a cluster it checks every master, of a Ring every shard that
// is up.
//
// Check measures the round trip as well. If the round trips that a decision needs on a new connection do not fit into
// the default of [core.WithTimeout], it returns a [store.ConfigError] with the Option "core.WithTimeout" that names
// the timeout to set; if you have set one, ignore this error.
//
// Check changes nothing and ends with ctx. An eviction policy is a problem even if maxmemory is 0, because maxmemory
// can be changed while the server runs. To see the policy, the user must be allowed to run INFO, which the store
// itself does not need.
func Check(ctx context.Context, client Client, opts ...Option) error {
	return redisclient.New(kind, client, opts).Check(ctx)
}

var kind = &redisclient.Kind{
	Package: redisclient.Package{Name: "redisstore", Needed: needed}, Begin: ":", NewFormat: newFormat,
	Settle: newScript("settle"), Entries: newScript("entries"), Merge: newScript("merge"), Reset: newScript("reset"),
}

//go:embed lua
var parts embed.FS

// The scripts. docs/internals.md describes their keys, arguments and replies in the section "Redis formats".
var (
	takeScript    = newScript("take")
	counterScript = newScript("counter")
	jointScript   = newScript("joint")

	jointSeveralScript  = newScript("joint_several")
	takeSeveralScript   = newScript("take_several")
	takeVariedScript    = newScript("take_varied")
	takeWeightedScript  = newScript("take_weighted")
	jointWeightedScript = newScript("joint_weighted")

	renewScript = newScript("renew")
	undoScript  = newScript("undo")
	bookScript  = newScript("book")
)

func newScript(name string) redisclient.Script { return redisclient.NewScript(parts, name) }

// needed are the commands that the scripts call, in a form that changes nothing if the key does not exist. TIME comes
// before writes, since Redis 6 may refuse writes after it, and ZADD before other writes, since after a write no command
// is refused for lack of memory. INCRBY gets a word, which it refuses to add. INFO is for Check alone.
var needed = []string{
	"TIME",
	"ZADD key XX 0 member",
	"ZREM key member",
	"ZREMRANGEBYRANK key 0 0",
	"ZREMRANGEBYSCORE key 0 0",
	"PEXPIRE key 1",
	"PTTL key",
	"UNLINK key",
	"ZCARD key",
	"ZCOUNT key 0 0",
	"ZRANGE key 0 0",
	"ZRANGEBYSCORE key 0 0",
	"ZSCORE key member",
	"ZUNIONSTORE key 1 key",
	"GET key",
	"SET key value XX",
	"INCRBY key none",
	"INFO",
}

// redisStore is a store of logs in sorted sets.
type redisStore struct {
	*redisclient.Logs

	undoTimeout time.Duration // of removals of units, which go on when the caller's context has ended
	undos       sync.Map      // the IDs of takes that are being removed, by a channel that is closed when they are
}

// Validate returns the faults of the options: the store can serve all limits, any number of logs at once.
func (s *redisStore) Validate(...*store.Plan) error { return s.Logs.Validate() }

// Take decides in one step if one script may use all logs of the request, and otherwise asks one after the other.
func (s *redisStore) Take(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	if err := store.ValidateTakes(takes, answers); err != nil {
		return err
	}
	for i := range takes {
		if err := redisclient.CheckCost(takes[i].Cost); err != nil {
			return err
		}
	}
	apart, err := s.Logs.Take(ctx, takes, answers)
	if apart == nil {
		return err
	}
	r := sequential{
		store: s, takes: takes, answers: answers, keys: apart, id: redisclient.IDText(takes[0].ID),
		most: store.MostGranted(takes), began: time.Now(),
	}
	return r.run(ctx)
}

// Book implements [store.Leaser].
func (s *redisStore) Book(ctx context.Context, b store.Booking) (booked store.Booked, err error) {
	if err := b.Validate(); err != nil {
		return booked, err
	}
	if err := redisclient.CheckCost(max(b.Take.Cost, b.Most, b.Share, b.Used)); err != nil {
		return booked, err
	}
	return s.Logs.Book(ctx, &b)
}

// Merge implements [store.Merger].
func (s *redisStore) Merge(ctx context.Context, m store.MergeRequest) error {
	err := s.afterUndo(ctx, func(id uint64) bool {
		return slices.ContainsFunc(m.Entries, func(e store.Entry) bool { return e.ID == id })
	})
	if err != nil {
		return err
	}
	return s.Logs.Merge(ctx, m)
}

// Renew implements [store.Renewer].
func (s *redisStore) Renew(ctx context.Context, r store.Renewal) error {
	if err := r.Key.Validate(); err != nil {
		return err
	}
	for part := range slices.Chunk(r.IDs, redisclient.AtOnce) {
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
