package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // the name that Redis gives a script, not a protection
	"encoding/hex"
	"reflect"

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
	overdue  chan struct{}                            // a place for each call that nobody waits for any more
}

// maxOverdue bounds the calls that go on after their deadline, in clients that do not look at it.
const maxOverdue = 64

func newConn(client Client) *conn {
	c := &conn{Client: client, overdue: make(chan struct{}, maxOverdue)}
	if p, ok := client.(interface {
		Process(ctx context.Context, cmd redis.Cmder) error
	}); ok {
		c.process = p.Process
	}
	switch client := client.(type) {
	case *redis.Client:
		// A clone shares the pool, but not the setting that has it ignore deadlines.
		prompt := client.WithTimeout(client.Options().ReadTimeout)
		prompt.Options().ContextTimeoutEnabled = true
		c.Client, c.process, c.single, c.prompt = prompt, prompt.Process, true, true
	case *redis.ClusterClient:
		c.pipeline, c.prompt = client.Pipeline, client.Options().ContextTimeoutEnabled
		c.node = func(ctx context.Context, key string) any {
			if n, err := client.MasterForKey(ctx, key); err == nil {
				return n
			}
			return nil // the call itself will say why
		}
	case *redis.Ring:
		c.pipeline, c.prompt = client.Pipeline, client.Options().ContextTimeoutEnabled
	}
	return c
}

func isNil(client Client) bool {
	if client == nil {
		return true
	}
	v := reflect.ValueOf(client)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// script is a Lua text and the name that Redis gives it. All of them reply with whole numbers.
type script struct{ text, hash string }

func newScript(text string) script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return script{text, hex.EncodeToString(sum[:])}
}

// question is one run of a script: its keys, then its arguments.
type question struct {
	script script
	keys   int
	args   []any
	reply  []int64
	err    error
}

// ask runs scripts, and comes back when the context's deadline has passed if not before.
func (c *conn) ask(ctx context.Context, questions ...*question) error {
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
		for i, q := range late {
			*questions[i] = *q
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// send runs scripts by their hash, and by their text where the server does not know it (yet, or after SCRIPT FLUSH, a
// restart or a failover). Without an error, each question has its own.
func (c *conn) send(ctx context.Context, questions []*question) error {
	if len(questions) > 1 {
		return c.sendAll(ctx, questions)
	}
	q := questions[0]
	if q.reply, q.err = c.run(ctx, q, "evalsha", q.script.hash); redis.HasErrorPrefix(q.err, "NOSCRIPT") {
		q.reply, q.err = c.run(ctx, q, "eval", q.script.text)
	}
	return nil
}

func (c *conn) run(ctx context.Context, q *question, command, script string) ([]int64, error) {
	if c.process != nil {
		cmd := newCommand(ctx, q, command, script)
		err := c.process(ctx, cmd)
		return cmd.Val(), err
	}
	keys := make([]string, q.keys)
	for i := range keys {
		keys[i], _ = q.args[i].(string)
	}
	if command == "evalsha" {
		return c.EvalSha(ctx, script, keys, q.args[q.keys:]...).Int64Slice()
	}
	return c.Eval(ctx, script, keys, q.args[q.keys:]...).Int64Slice()
}

// newCommand makes a command that reads numbers without a box for each.
func newCommand(ctx context.Context, q *question, command, script string) *redis.IntSliceCmd {
	args := make([]any, 0, 3+len(q.args))
	args = append(append(args, command, script, q.keys), q.args...)
	cmd := redis.NewIntSliceCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

func (c *conn) sendAll(ctx context.Context, questions []*question) error {
	var unknown []*question
	for round := range 2 {
		pipe := c.pipeline()
		cmds := make([]*redis.IntSliceCmd, len(questions))
		for i, q := range questions {
			if round == 0 {
				cmds[i] = newCommand(ctx, q, "evalsha", q.script.hash)
			} else {
				cmds[i] = newCommand(ctx, q, "eval", q.script.text)
			}
			if err := pipe.Process(ctx, cmds[i]); err != nil {
				return err
			}
		}
		pipe.Exec(ctx) //nolint:errcheck // each command has its own error
		unknown = nil
		for i, q := range questions {
			if q.reply, q.err = cmds[i].Result(); redis.HasErrorPrefix(q.err, "NOSCRIPT") {
				unknown = append(unknown, q)
			}
		}
		if questions = unknown; len(unknown) == 0 {
			break
		}
	}
	return nil
}
