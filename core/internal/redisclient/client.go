package redisclient

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/internal/deadline"
	"github.com/sashlimit/sash/core/store"
)

// Client is the part of a go-redis client that stores need.
type Client interface {
	Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd
	EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd
}

// Conn is a client and what the store knows about it.
type Conn struct {
	Client

	Process   func(context.Context, redis.Cmder) error // or nil
	pipeline  func() redis.Pipeliner                   // if keys may be on several servers
	node      func(context.Context, string) any        // returns the server that has a key, or nil if that is not known
	Single    bool                                     // one script may use several keys, whichever they are
	together  func([]string) bool                      // reports whether one script may use these keys; or nil
	prompt    bool                                     // the client ends a call at the deadline of its context
	abandoned chan struct{}                            // a semaphore of calls that may outlast their deadline: see call
	dials     *dialWatch                               // of the client of a single server, or nil
	silence   *silence                                 // of the server, or of all servers
}

// maxAbandoned bounds the calls in clients that do not heed deadlines: of all nodes; or to one node, those of one
// batcher, to which calls other than takes belong as well.
const maxAbandoned = 256

func newConn(client Client) *Conn {
	c := &Conn{Client: client, abandoned: make(chan struct{}, maxAbandoned), silence: new(silence)}
	c.node = func(context.Context, string) any { return nil }
	// Of any other type only the methods of Client are called: it may embed a go-redis client to change these.
	switch client := client.(type) {
	case *redis.Client:
		c.toOneServer(client)
	case *redis.ClusterClient:
		c.Process, c.pipeline = client.Process, client.Pipeline
		watchNodes(client, client.OnNewNode)
		c.node = func(ctx context.Context, key string) any {
			if !c.silence.answered.Load() {
				return nil // the client would ask for the slots first, without heeding the deadline
			}
			if n, err := client.MasterForKey(ctx, key); err == nil {
				return n
			}
			return nil // the call itself will fail and tell the reason
		}
	case *redis.Ring:
		c.Process, c.pipeline = client.Process, client.Pipeline
		c.together = onOneShard(client)
		if watchNodes(client, client.OnNewNode) { // those that it has made as well
			//nolint:errcheck // there is none
			client.ForEachShard(context.Background(), func(_ context.Context, shard *redis.Client) error {
				watchDials(shard, true)
				return nil
			})
		}
	}
	return c
}

// toOneServer has the scripts run by a clone of the client, or by the client where a clone would lose its hooks.
func (c *Conn) toOneServer(client *redis.Client) {
	// The clone shares the pool, but heeds deadlines and retries without a pause. With a pause, a call would end at
	// its deadline without the server's error. A negative timeout would switch all deadlines off.
	own := client.WithTimeout(max(0, client.Options().ReadTimeout))
	o := own.Options()
	o.ContextTimeoutEnabled, o.MinRetryBackoff = true, 0
	c.Client, c.Single = own, true
	dials := watchDials(client, false)
	c.dials, c.silence = dials, &dials.silence
	c.Process = func(ctx context.Context, cmd redis.Cmder) error {
		if Redials || deadline.Stalls(ctx) {
			return (&dialCtx{watch: dials}).process(ctx, own, cmd)
		}
		err := own.Process(ctx, cmd)
		if !deadline.Stalls(ctx) {
			dials.silence.note(err, time.Now())
		}
		return err
	}
	if !ClonesKeepHooks() {
		c.Process = func(ctx context.Context, cmd redis.Cmder) error {
			dials.addHook(client)
			return client.Process(ctx, &hookedCmd{Cmder: cmd, to: own, dial: dialCtx{watch: dials}})
		}
	}
	// When it opens a connection, go-redis heeds no deadline in a TLS handshake, nor while it calls these functions.
	// Nodes of a cluster or Ring may have any, and a cluster's client also asks for commands with a context of its own.
	c.prompt = o.TLSConfig == nil && o.OnConnect == nil && codeOf(o.Dialer) == usualDialer &&
		o.CredentialsProvider == nil && o.CredentialsProviderContext == nil
}

// usualDialer identifies the default dialer, which heeds deadlines if there is no TLS. The dialer of a failover client,
// for example, does not.
var usualDialer = func() uintptr {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	return codeOf(client.Options().Dialer)
}()

func unknownScript(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

// do runs scripts. It returns when the context ends, if not before.
func (c *Conn) do(ctx context.Context, calls ...*call) error {
	ctx, cancel := c.silence.inTime(ctx)
	defer cancel()
	if c.prompt {
		return c.send(ctx, calls)
	}
	return c.doAside(ctx, calls)
}

// forOne returns a context for one operation in a client that does not heed deadlines: it ends with ctx, but waits for
// this process only as long as one operation may have to.
func forOne(ctx context.Context) (context.Context, context.CancelFunc) {
	one, ok := deadline.ForOne(ctx)
	if !ok {
		return ctx, func() {}
	}
	if _, ok := ctx.(deadline.Context); ok { // which nobody can cancel
		return one, func() {}
	}
	own, cancel := context.WithCancel(one)
	context.AfterFunc(ctx, cancel)
	return own, cancel
}

// doAside is do for clients that do not heed deadlines.
func (c *Conn) doAside(parent context.Context, calls []*call) error {
	ctx, cancel := forOne(parent)
	defer cancel()
	abandoned := cmp.Or(calls[0].abandoned, c.abandoned)
	select {
	case abandoned <- struct{}{}:
	case <-ctx.Done():
		return cmp.Or(parent.Err(), ctx.Err())
	}
	// The goroutine writes to copies, since the caller may return before it has finished.
	late := make([]*call, len(calls))
	for i, q := range calls {
		copied := *q
		late[i] = &copied
	}
	done := make(chan error, 1)
	go func() {
		defer func() { <-abandoned }()
		done <- c.send(ctx, late)
	}()
	err, ok := Await(ctx, done)
	if ok {
		for i, q := range calls {
			*q = *late[i]
		}
		return err
	}
	err = cmp.Or(parent.Err(), ctx.Err())
	if errors.Is(err, context.DeadlineExceeded) {
		c.silence.unanswered()
	}
	return c.dials.reason(err)
}

// Await receives from a channel. It reports false if ctx ends and there is nothing to receive.
func Await[T any](ctx context.Context, from <-chan T) (received T, ok bool) {
	select {
	case received = <-from:
		return received, true
	case <-ctx.Done():
	}
	select {
	case received = <-from: // both were ready
		return received, true
	default:
		return received, false
	}
}

// send runs scripts. If it returns no error, each call has its own.
func (c *Conn) send(ctx context.Context, calls []*call) (err error) {
	defer func() {
		// go-redis trusts the lengths that a server announces, and a hook may panic.
		if p := recover(); p != nil {
			err = ProtocolError("the client has panicked: %v", p)
		}
	}()
	if c.pipeline != nil && Redials {
		ctx = context.WithValue(ctx, isStoreCtx{}, true)
	}
	q := calls[0]
	if len(calls) > 1 {
		err = c.sendAll(ctx, calls)
	} else if c.run(ctx, q); unknownScript(q.err) {
		q.byText()
		c.run(ctx, q)
	}
	if err == nil && q.err == nil {
		c.silence.heard()
	}
	return err
}

func (c *Conn) run(ctx context.Context, q *call) {
	switch {
	case c.Process == nil:
	case q.wantsTexts:
		cmd := redis.NewStringSliceCmd(ctx, q.args...)
		cmd.SetFirstKeyPos(keysAt)
		q.err = c.Process(ctx, cmd)
		q.texts = cmd.Val()
		return
	default:
		cmd := q.command(ctx)
		q.err = c.Process(ctx, cmd)
		q.reply = cmd.Val()
		return
	}
	keys := make([]string, q.keys)
	for i := range keys {
		keys[i], _ = q.args[keysAt+i].(string)
	}
	script, _ := q.args[scriptAt].(string)
	run := c.EvalSha
	if q.args[commandAt] == eval {
		run = c.Eval
	}
	reply := run(ctx, script, keys, q.args[keysAt+q.keys:]...)
	if q.wantsTexts {
		q.texts, q.err = reply.StringSlice()
	} else {
		q.reply, q.err = reply.Int64Slice()
	}
}

func (c *Conn) sendAll(ctx context.Context, calls []*call) error {
	if c.pipeline == nil {
		var all sync.WaitGroup
		for _, q := range calls {
			one := func() {
				if err := c.send(ctx, []*call{q}); err != nil {
					q.err = err
				}
			}
			if c.Single { // they are about different logs
				all.Go(one)
			} else {
				one()
			}
		}
		all.Wait()
		return nil
	}
	for range 2 {
		pipe := c.pipeline()
		cmds := make([]*redis.IntSliceCmd, len(calls))
		for i, q := range calls {
			cmds[i] = q.command(ctx)
			if err := pipe.Process(ctx, cmds[i]); err != nil {
				return err
			}
		}
		pipe.Exec(ctx) //nolint:errcheck // each command has its own error
		var unknown []*call
		for i, q := range calls {
			switch q.reply, q.err = cmds[i].Result(); {
			case unknownScript(q.err):
				q.byText()
				unknown = append(unknown, q)
			case q.reply == nil && q.err == nil:
				q.err = errNoShard
			}
		}
		if calls = unknown; len(unknown) == 0 {
			break
		}
	}
	return nil
}

// errNoShard is the error of commands to a shard to which a Ring has no connection: go-redis drops the reason.
var errNoShard = &store.StoreError{
	Err: errors.New("the Ring has no connection to a shard"), Class: ClassRefused,
	Advice: "start the shard, or correct its address, password, TLSConfig or PoolSize: " +
		"go-redis does not tell why a Ring has no connection",
}

// watchNodes watches the dials of the clients that a cluster or Ring makes from now on. It reports whether it does so
// for the first time, if go-redis dials again.
func watchNodes(client any, onNewNode func(func(*redis.Client))) bool {
	if !Redials {
		return false
	}
	_, first := storeOnce(&watchedNodes, client, nil)
	if first {
		onNewNode(func(node *redis.Client) { watchDials(node, true) })
	}
	return first
}

// onOneShard returns a function that reports whether one script may use these keys of a Ring, or nil if this go-redis
// does not tell which shard has a key.
func onOneShard(ring any) func(keys []string) bool {
	tells, ok := ring.(interface {
		GetShardClientForKey(key string) (*redis.Client, error)
	})
	if !ok {
		return nil
	}
	return func(keys []string) bool {
		first, err := tells.GetShardClientForKey(keys[0])
		for _, key := range keys[1:] {
			if shard, failed := tells.GetShardClientForKey(key); err != nil || failed != nil || shard != first {
				return false
			}
		}
		return true
	}
}
