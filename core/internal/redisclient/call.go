package redisclient

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// command is one run of a script, and the questions that it asks.
type command struct {
	*redis.IntSliceCmd

	firsts []*Question
}

// Indexes of a command's arguments.
const (
	commandAt = 0
	scriptAt  = 1
	keysAt    = 3
)

// newCommand returns a command that has its keys as texts, which the client's hooks may read and keep.
func newCommand(ctx context.Context, p *Plan, firsts []*Question) command {
	args := make([]any, keysAt, keysAt+len(firsts)*(len(firsts[0].Keys)+1)+len(p.Tail))
	for _, q := range firsts {
		for _, key := range q.Keys {
			args = append(args, key)
		}
	}
	args[commandAt], args[scriptAt] = p.Script.called()
	args[keysAt-1] = len(args) - keysAt
	for _, q := range firsts {
		if q.Argument != "" {
			args = append(args, q.argument())
		}
	}
	if args = append(args, p.Tail...); p.Since {
		since := int64(0)
		if firsts[0].since != nil {
			since = firsts[0].since.Load()
		}
		args = append(args, since)
	}
	return command{newCmd(ctx, args), firsts}
}

func newCmd(ctx context.Context, args []any) *redis.IntSliceCmd {
	cmd := redis.NewIntSliceCmd(ctx, args...) // reads numbers without an allocation for each
	cmd.SetFirstKeyPos(keysAt)
	return cmd
}

// argument returns the argument of all questions that have become one.
func (q *Question) argument() string {
	if q.next == nil {
		return q.Argument
	}
	b := make([]byte, 0, q.StandsFor*idLength+len(q.rest()))
	for one := q; one != nil; one = one.next {
		b = append(b, one.Argument[:idLength]...)
	}
	return string(append(b, q.rest()...))
}

// ask asks questions, and sets Reply and err of each.
func (c *Conn) ask(ctx context.Context, p *Plan, firsts []*Question) {
	each := 1
	if c.one {
		each = len(firsts)
	}
	c.askBy(ctx, p, firsts, each)
	if err := firsts[0].err; err != nil && each > 1 && c.diagnose(err).OneKey {
		c.askBy(ctx, p, firsts, 1) // which key it is, the error does not tell
	}
	for _, q := range firsts {
		q.err = c.Failed(q.err)
	}
	if firsts[0].err == nil && !c.answered.Load() {
		c.answered.Store(true)
	}
}

// askBy has each command ask so many questions.
func (c *Conn) askBy(ctx context.Context, p *Plan, firsts []*Question, each int) {
	var one [1]command // which is enough, mostly
	cmds := one[:0]
	for some := range slices.Chunk(firsts, each) {
		cmds = append(cmds, newCommand(ctx, p, some))
	}
	c.run(ctx, cmds)
	// A server knows no script after it has started, after SCRIPT FLUSH, and after a failover.
	var unknown []command
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			args := slices.Clone(cmd.Args()) // a hook may keep the old ones
			args[commandAt], args[scriptAt] = eval, p.Script.text
			unknown = append(unknown, command{newCmd(ctx, args), cmd.firsts})
		} else {
			cmd.answer(p)
		}
	}
	c.run(ctx, unknown)
	for _, cmd := range unknown {
		cmd.answer(p)
	}
}

// answer cuts the reply for the questions.
func (c *command) answer(p *Plan) {
	reply, err := c.Result()
	if reply == nil && err == nil {
		err = errNoShard
	} else if last := len(reply) - 1; p.Since && last >= 0 {
		if since := c.firsts[0].since; since != nil {
			since.Store(reply[last])
		}
		reply = reply[:last]
	}
	for i, q := range c.firsts {
		n := len(reply)
		if err == nil && p.Cut != nil {
			n = p.Cut(reply, len(q.Keys))
			if n < 0 || n > len(reply) || i == len(c.firsts)-1 && n < len(reply) {
				err = ProtocolError("a reply with %d numbers left where %d are due", len(reply), n)
			}
		}
		if q.err = err; err == nil {
			q.Reply, reply = reply[:n:n], reply[n:]
		}
	}
}

// run runs commands.
func (c *Conn) run(ctx context.Context, cmds []command) {
	defer recovered(func(err error) {
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
	})
	switch {
	case len(cmds) == 0:
	case c.known == nil:
		for _, cmd := range cmds {
			cmd.evaluate(ctx, c.client)
		}
	case len(cmds) == 1:
		if err := c.known.Process(ctx, cmds[0].IntSliceCmd); err != nil {
			cmds[0].SetErr(err)
		}
	default:
		pipe := c.known.Pipeline()
		for _, cmd := range cmds {
			pipe.Process(ctx, cmd.IntSliceCmd) //nolint:errcheck // Exec sends it
		}
		pipe.Exec(ctx) //nolint:errcheck // each command has its own error
	}
}

// recovered is deferred. It makes a panic an error: go-redis trusts the lengths that a server announces, and a hook may
// panic.
func recovered(failed func(error)) {
	if v := recover(); v != nil {
		failed(ProtocolError("the client has panicked: %v", v))
	}
}

// evaluate runs a command by the methods that clients of all types have.
func (c *command) evaluate(ctx context.Context, client Client) {
	var keys []string
	for _, q := range c.firsts {
		keys = append(keys, q.Keys...)
	}
	run := client.EvalSha
	if c.Args()[commandAt] == eval {
		run = client.Eval
	}
	script, _ := c.Args()[scriptAt].(string)
	reply, err := run(ctx, script, keys, c.Args()[keysAt+len(keys):]...).Int64Slice()
	c.SetVal(reply)
	c.SetErr(err)
}
