package redisstore

import (
	"context"
	"crypto/tls"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/redis/go-redis/v9"
)

// Client is what the store needs of a go-redis client: *redis.Client,
// *redis.ClusterClient, *redis.Ring and failover clients have it.
type Client interface {
	Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd
	EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd
}

// conn is a client and what is known of its kind.
type conn struct {
	Client

	process  func(context.Context, redis.Cmder) error // or nil
	pipeline func() redis.Pipeliner                   // where keys may be on several servers
	node     func(context.Context, string) any        // ... the one that has a key
	single   bool                                     // one script may touch several keys
	prompt   bool                                     // a call ends with its context's deadline
	answered atomic.Bool                              // at least once
	overdue  chan struct{}                            // a place for each call that nobody waits for any more
	dials    *dialWatch                               // of a single server's client, or nil
}

// maxOverdue bounds the calls that go on after their deadline, in clients that do not look at it.
const maxOverdue = 256

func newConn(client Client) *conn {
	c := &conn{Client: client, overdue: make(chan struct{}, maxOverdue)}
	// A type of somebody's own is asked by nothing but what Client has: it may embed a client to change that.
	switch client := client.(type) {
	case *redis.Client:
		// A clone shares the pool, but not the settings that have it ignore deadlines, and wait until one has passed
		// before it tries again, so that nobody hears what the server has said.
		own := client.WithTimeout(client.Options().ReadTimeout)
		o := own.Options()
		o.ContextTimeoutEnabled, o.MinRetryBackoff = true, 0
		c.Client, c.process, c.single = own, own.Process, true
		dials := watchDials(client, false)
		if c.dials = dials; dials != nil {
			c.process = func(ctx context.Context, cmd redis.Cmder) error {
				return (&dialCtx{watch: dials}).process(ctx, own, cmd)
			}
		}
		if !clonesKeepHooks() {
			addDetour(client)
			c.process = func(ctx context.Context, cmd redis.Cmder) error {
				return client.Process(ctx, &detoured{Cmder: cmd, to: own, dial: dialCtx{watch: dials}})
			}
		}
		c.prompt = dialsPromptly(o.TLSConfig, o.OnConnect) && codeOf(o.Dialer) == usualDialer &&
			o.CredentialsProvider == nil && o.CredentialsProviderContext == nil
	case *redis.ClusterClient:
		o := client.Options()
		c.process, c.pipeline = client.Process, client.Pipeline
		c.prompt = o.ContextTimeoutEnabled && o.Dialer == nil && dialsPromptly(o.TLSConfig, o.OnConnect)
		watchCluster(client)
		c.node = func(ctx context.Context, key string) any {
			if !c.answered.Load() {
				return nil // it would have to ask for the slots first, in its own time
			}
			if n, err := client.MasterForKey(ctx, key); err == nil {
				return n
			}
			return nil // the call itself will say why
		}
	case *redis.Ring:
		o := client.Options()
		c.process, c.pipeline = client.Process, client.Pipeline
		c.prompt = o.ContextTimeoutEnabled && o.Dialer == nil && dialsPromptly(o.TLSConfig, o.OnConnect)
		watchRing(client)
	}
	return c
}

// clonesKeepHooks tells whether a client's hooks, such as those that trace, see what its clone does: in go-redis 9.14 they do,
// in 9.23 they do not.
var clonesKeepHooks = sync.OnceValue(func() bool {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	var built builds
	client.AddHook(&built)
	before := built
	client.WithTimeout(0)
	return built > before
})

// builds counts how often it was built into a client.
type builds int

func (*builds) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*builds) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (b *builds) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	*b++
	return next
}

// detour is a hook for clients whose clones do not keep theirs: it is the last, and gives the clone what all others have seen.
type detour struct{}

type detoured struct {
	redis.Cmder

	to   *redis.Client
	dial dialCtx
}

// detours are the clients that have one.
var detours sync.Map

func addDetour(client *redis.Client) {
	key := weak.Make(client)
	if _, has := detours.LoadOrStore(key, struct{}{}); !has {
		runtime.AddCleanup(client, func(key weak.Pointer[redis.Client]) { detours.Delete(key) }, key)
		client.AddHook(detour{})
	}
}

func (detour) DialHook(next redis.DialHook) redis.DialHook { return next }

func (detour) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (detour) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if d, ok := cmd.(*detoured); ok {
			return d.dial.process(ctx, d.to, d.Cmder)
		}
		return next(ctx, cmd)
	}
}

// usualDialer is the one that heeds deadlines, without TLS; that of a failover client, say, does not.
var usualDialer = func() uintptr {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	return codeOf(client.Options().Dialer)
}()

func codeOf(f any) uintptr { return reflect.ValueOf(f).Pointer() }

// dialsPromptly reports whether a new connection is made within the deadline of who asks for it: go-redis shakes hands for
// TLS in its own time.
func dialsPromptly(secure *tls.Config, onConnect func(context.Context, *redis.Conn) error) bool {
	return secure == nil && onConnect == nil
}

func isNil(client Client) bool {
	if client == nil {
		return true
	}
	v := reflect.ValueOf(client)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// question is one run of a script.
type question struct {
	script script
	args   []any // the command: see newQuestion
	keys   int
	reply  []int64
	err    error
}

const (
	commandAt = 0
	scriptAt  = 1
	keysAt    = 3
)

var evalSha, eval any = "evalsha", "eval"

// newQuestion has room for keys and arguments: from keysAt on.
func newQuestion(sc script, keys, args int) question {
	var q question
	q.init(sc, keys, make([]any, keysAt+keys+args))
	return q
}

// init begins a question whose command is args.
func (q *question) init(sc script, keys int, args []any) {
	*q = question{script: sc, keys: keys, args: args}
	q.args[commandAt], q.args[scriptAt], q.args[keysAt-1] = evalSha, sc.hash, keys
}

// byText is the same question for a server that does not know the script (yet, or after SCRIPT FLUSH, a restart or a
// failover).
func (q *question) byText() {
	q.args = slices.Clone(q.args) // the client may still hold them
	q.args[commandAt], q.args[scriptAt] = eval, q.script.text
}

func (q *question) command(ctx context.Context) *redis.IntSliceCmd {
	cmd := redis.NewIntSliceCmd(ctx, q.args...) // reads numbers without a box for each
	cmd.SetFirstKeyPos(keysAt)
	return cmd
}

func unknownScript(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

// ask runs scripts, and comes back when the context's deadline has passed if not before.
func (c *conn) ask(ctx context.Context, questions ...*question) error {
	if c.pipeline != nil && redials {
		ctx = storeCtx{ctx}
	}
	if c.prompt {
		return c.send(ctx, questions)
	}
	select {
	case c.overdue <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	// These are copies: who has given up may not look at what is written later.
	late := make([]*question, len(questions))
	for i, q := range questions {
		copied := *q
		late[i] = &copied
	}
	done := make(chan error, 1)
	go func() {
		defer func() { <-c.overdue }()
		done <- c.send(ctx, late)
	}()
	select {
	case err := <-done:
		for i, q := range questions {
			*q = *late[i]
		}
		return err
	case <-ctx.Done():
		return c.dials.reason(ctx.Err())
	}
}

// send runs scripts. Without an error, each question has its own.
func (c *conn) send(ctx context.Context, questions []*question) (err error) {
	defer func() {
		// go-redis believes what length a server announces, and a hook may do anything.
		if p := recover(); p != nil {
			err = protocolError("the client has panicked: %v", p)
		}
	}()
	if len(questions) > 1 {
		return c.sendAll(ctx, questions)
	}
	q := questions[0]
	if c.run(ctx, q); unknownScript(q.err) {
		q.byText()
		c.run(ctx, q)
	}
	if q.err == nil && !c.answered.Load() {
		c.answered.Store(true)
	}
	return nil
}

func (c *conn) run(ctx context.Context, q *question) {
	if c.process != nil {
		cmd := q.command(ctx)
		q.err = c.process(ctx, cmd)
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
	q.reply, q.err = run(ctx, script, keys, q.args[keysAt+q.keys:]...).Int64Slice()
}

func (c *conn) sendAll(ctx context.Context, questions []*question) error {
	if c.pipeline == nil {
		for _, q := range questions {
			if err := c.send(ctx, []*question{q}); err != nil {
				return err
			}
		}
		return nil
	}
	for range 2 {
		pipe := c.pipeline()
		cmds := make([]*redis.IntSliceCmd, len(questions))
		for i, q := range questions {
			cmds[i] = q.command(ctx)
			if err := pipe.Process(ctx, cmds[i]); err != nil {
				return err
			}
		}
		pipe.Exec(ctx) //nolint:errcheck // each command has its own error
		var unknown []*question
		for i, q := range questions {
			if q.reply, q.err = cmds[i].Result(); unknownScript(q.err) {
				q.byText()
				unknown = append(unknown, q)
			}
		}
		if questions = unknown; len(unknown) == 0 {
			break
		}
	}
	return nil
}
