// Package redisclient is what the stores in Redis have in common: how questions of several callers go to a server
// together (question.go, batch.go, call.go), what its errors mean (errors.go), how it is checked (check.go), overrides,
// and what is done with logs beside deciding takes (log.go). Scripts for that differ, but have the same arguments and
// replies.
//
// A caller waits for its answer, or for the end of its context. A goroutine makes the call, with the timeouts that the
// go-redis client has.
package redisclient

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/store"
)

// Client is the part of a go-redis client that stores need.
type Client interface {
	Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd
	EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd
}

// Package is a package of stores.
type Package struct {
	Name     string   // for errors
	Commands []string // that its scripts call, in capital letters

	begin                  string // what a key has between the prefix and the text of its store.Key
	rewrites               bool   // a merge writes the whole log anew
	settle, entries, reset *Script
}

// NewPackage returns a package by its files of Lua, among them settle, entries and reset.
func NewPackage(name, begin string, rewrites bool, commands []string, files embed.FS) *Package {
	return &Package{
		name, commands, begin, rewrites,
		LoadScript(files, "settle"), LoadScript(files, "entries"), LoadScript(files, "reset"),
	}
}

// Option changes a store.
type Option func(*Options)

// Options are those that the stores of all packages have.
type Options struct {
	Prefix    string // of every key
	OneServer bool   // all keys of the client are on one server
}

// Conn asks the servers of a client.
type Conn struct {
	client  Client
	of      *Package
	prefix  string
	faults  []error                      // of the options
	changes Recent[time.Duration, *Plan] // how takes are settled (0), or merged into logs of a window

	known  processor // the client, if its type is known, or nil
	one    bool      // one script may use all keys
	member bool      // it is one server of a cluster or Ring
	dial   *dial     // or nil

	node      func(ctx context.Context, key string) (*redis.Client, error) // finds the server that has a key; or nil
	servers   Recent[*redis.Client, *server]
	all       *server     // all of them, where they are not told apart
	pings     *server     // the same, for pings
	answered  atomic.Bool // whether there was an answer
	questions sync.Pool   // that were freed
	senders   chan *queue // what goroutines that have sent a batch receive from
}

// processor is what go-redis clients have of which the type is known.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

// New returns a Conn. Validate reports what is wrong with its options.
func New(of *Package, client Client, opts ...Option) *Conn {
	o := Options{Prefix: "sash"}
	for _, option := range opts {
		if option != nil {
			option(&o)
		}
	}
	c := newConn(of, client, o.Prefix)
	const allowed = "abcdefghijklmnopqrstuvwxyz0123456789._-"
	if o.Prefix == "" || len(o.Prefix) > 16 || strings.Trim(o.Prefix, allowed) != "" {
		c.fault("WithPrefix", strconv.Quote(o.Prefix), "the prefix is not valid",
			"use 1 to 16 lower-case letters, digits, '.', '_' or '-'")
	}
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		c.fault("New", "nil", "the client is nil",
			`pass a go-redis client, such as redis.NewClient(&redis.Options{Addr: "localhost:6379"})`)
		return c
	}
	// Of any other type only the methods of Client are called: it may embed a go-redis client to change these.
	switch client := client.(type) {
	case *redis.Client:
		c.known, c.one, c.dial = client, true, watch(client, client.AddHook)
	case *redis.ClusterClient:
		c.known, c.dial = client, watch(client, func(hook redis.Hook) {
			client.OnNewNode(func(node *redis.Client) { node.AddHook(hook) })
		})
		c.node = client.MasterForKey
	case *redis.Ring:
		c.known = client
		if tells, ok := any(client).(interface { // which versions of go-redis after 9.7 have
			GetShardClientForKey(key string) (*redis.Client, error)
		}); ok {
			c.node = func(_ context.Context, key string) (*redis.Client, error) {
				return tells.GetShardClientForKey(key)
			}
		}
	default:
		if c.one = o.OneServer; !c.one {
			c.warnOfUnknownClient()
		}
	}
	if o.OneServer && !c.one {
		c.fault("WithOneServer", fmt.Sprintf("%T", client), "this client is for several servers",
			"leave the option out")
	}
	if !c.one && c.node == nil { // any of the servers could hold up a batch
		c.all = newServer(mostCalls, mostCalls, 1)
	}
	return c
}

func newConn(of *Package, client Client, prefix string) *Conn {
	return &Conn{
		client: client, of: of, prefix: prefix, senders: make(chan *queue),
		all:   newServer(fewBatches, mostBatches, mostKeys),
		pings: newServer(fewBatches, fewBatches, mostKeys),
	}
}

func (c *Conn) fault(option, value, problem, remedy string) {
	c.faults = append(c.faults, &store.ConfigError{
		Option: c.of.Name + "." + option, Value: value, Problem: problem, Remedy: remedy,
	})
}

// Validate returns the faults of the options.
func (c *Conn) Validate() error { return errors.Join(c.faults...) }

// LogsOf tells which stores have the same logs: those of one client, package and prefix.
func (c *Conn) LogsOf() (client any, prefix string) { return c.client, c.of.Name + ":" + c.prefix }

// OneServer reports whether one script may use several keys, whichever they are.
func (c *Conn) OneServer() bool { return c.one }

// serverOf returns the server that has a key.
func (c *Conn) serverOf(ctx context.Context, key string) *server {
	// Before a cluster has answered once, its client would ask it for the slots first.
	if c.node == nil || !c.answered.Load() {
		return c.all
	}
	node, err := c.node(ctx, key)
	if err != nil {
		return c.all // the call itself will fail and tell the reason
	}
	return c.servers.Get(node, func() *server { return newServer(fewBatches, mostBatches, mostKeys) })
}

// Run runs a script once, by itself.
func (c *Conn) Run(ctx context.Context, s *Script, keys []string, args ...any) ([]int64, error) {
	q := &Question{Keys: keys, key: keys[0], wakeUp: make(chan struct{}, 1)}
	if err := c.Do(ctx, &Plan{Script: s, Tail: args}, q); err != nil {
		return nil, err // the batcher may still use the question
	}
	return q.Reply, nil
}

// until waits for what f returns, but not longer than ctx, which many clients do not heed.
func (c *Conn) until(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() {
		defer recovered(func(err error) { done <- err })
		done <- f()
	}()
	select {
	case err := <-done:
		return c.Failed(err)
	case <-ctx.Done():
		return c.Failed(c.dial.reason(ctx.Err()))
	}
}

// warned has the types of clients that were logged.
var warned sync.Map

// warnOfUnknownClient logs that the client is of a type that is not known, once for each type.
func (c *Conn) warnOfUnknownClient() {
	if _, before := warned.LoadOrStore(reflect.TypeOf(c.client), true); !before {
		slog.Warn("sash: this type of Redis client is unknown, so its keys are assumed to be on several servers",
			slog.String("type", fmt.Sprintf("%T", c.client)),
			slog.String("remedy", fmt.Sprintf("pass %s.New the go-redis client itself, or %[1]s.WithOneServer() if "+
				"there is one server", c.of.Name)))
	}
}
