package redisclient

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// command is one run of a script.
type command struct {
	*Plan
	args   []any       // EVALSHA or EVAL, the script, how many keys, the keys, the arguments
	firsts []*Question // that it asks

	reply []int64
	texts []string
	err   error
}

// Indexes of a command's arguments.
const (
	commandAt = 0
	scriptAt  = 1
	keysAt    = 3
)

var evalSha, eval any = "evalsha", "eval"

// newCommand returns a command with its keys as texts, which the client's hooks may read and keep.
func newCommand(p *Plan, firsts []*Question) command {
	args := make([]any, keysAt, keysAt+len(firsts)*(len(firsts[0].Keys)+1)+len(p.Tail))
	for _, q := range firsts {
		for _, key := range q.Keys {
			args = append(args, key)
		}
	}
	args[commandAt], args[scriptAt], args[keysAt-1] = evalSha, p.Script.hash(), len(args)-keysAt
	for _, q := range firsts {
		if q.Argument != "" {
			args = append(args, q.argument())
		}
	}
	return command{Plan: p, args: append(args, p.Tail...), firsts: firsts}
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

// send asks questions, and sets Reply, or texts, and err of each.
func (c *Conn) send(ctx context.Context, p *Plan, firsts []*Question) {
	each := 1
	if c.one {
		each = len(firsts)
	}
	c.sendBy(ctx, p, firsts, each)
	if err := firsts[0].err; err != nil && each > 1 && c.diagnose(err).OneKey {
		c.sendBy(ctx, p, firsts, 1) // which key it is, the error does not tell
	}
	for _, q := range firsts {
		q.err = c.Failed(q.err)
	}
	if firsts[0].err == nil && !c.answered.Load() {
		c.answered.Store(true)
	}
}

// sendBy has each command ask so many questions.
func (c *Conn) sendBy(ctx context.Context, p *Plan, firsts []*Question, each int) {
	cmds := make([]command, 0, (len(firsts)+each-1)/each)
	for some := range slices.Chunk(firsts, each) {
		cmds = append(cmds, newCommand(p, some))
	}
	c.run(ctx, cmds)
	// A server knows no script since it started, after SCRIPT FLUSH, or after a failover.
	var unknown []command
	for _, cmd := range cmds {
		if cmd.err != nil && redis.HasErrorPrefix(cmd.err, "NOSCRIPT") {
			cmd.args = slices.Clone(cmd.args) // a hook may keep the old ones
			cmd.args[commandAt], cmd.args[scriptAt] = eval, p.Script.text
			unknown = append(unknown, cmd)
		} else {
			cmd.answer()
		}
	}
	c.run(ctx, unknown)
	for _, cmd := range unknown {
		cmd.answer()
	}
}

// answer cuts the reply for the questions.
func (c *command) answer() {
	for i, q := range c.firsts {
		n := len(c.reply)
		if c.err == nil && c.Cut != nil {
			n = c.Cut(c.reply, q.StandsFor)
			if n < 0 || n > len(c.reply) || i == len(c.firsts)-1 && n < len(c.reply) {
				c.err = ProtocolError("a reply with %d numbers left where %d are due", len(c.reply), n)
			}
		}
		if q.err = c.err; c.err == nil {
			q.Reply, c.reply, q.texts = c.reply[:n:n], c.reply[n:], c.texts
		}
	}
}

// run runs commands, and sets reply, or texts, and err of each.
func (c *Conn) run(ctx context.Context, cmds []command) {
	defer func() {
		// go-redis trusts the lengths that a server announces, and a hook may panic.
		if v := recover(); v != nil {
			for i := range cmds {
				cmds[i].err = ProtocolError("the client has panicked: %v", v)
			}
		}
	}()
	switch {
	case len(cmds) == 0:
	case c.process == nil:
		for i := range cmds {
			cmds[i].evaluate(ctx, c.client)
		}
	case len(cmds) == 1:
		cmd := cmds[0].cmder(ctx)
		cmds[0].read(cmd, c.process(ctx, cmd))
	default:
		pipe := c.pipeline()
		made := make([]redis.Cmder, len(cmds))
		for i := range cmds {
			made[i] = cmds[i].cmder(ctx)
			pipe.Process(ctx, made[i]) //nolint:errcheck // Exec sends it
		}
		pipe.Exec(ctx) //nolint:errcheck // each command has its own error
		for i := range cmds {
			cmds[i].read(made[i], made[i].Err())
		}
	}
}

func (c *command) cmder(ctx context.Context) redis.Cmder {
	if c.Plan.texts {
		cmd := redis.NewStringSliceCmd(ctx, c.args...)
		cmd.SetFirstKeyPos(keysAt)
		return cmd
	}
	cmd := redis.NewIntSliceCmd(ctx, c.args...) // reads numbers without an allocation for each
	cmd.SetFirstKeyPos(keysAt)
	return cmd
}

func (c *command) read(cmd redis.Cmder, err error) {
	c.err = err
	switch cmd := cmd.(type) {
	case *redis.StringSliceCmd:
		c.texts = cmd.Val()
	case *redis.IntSliceCmd:
		if c.reply = cmd.Val(); c.reply == nil && err == nil {
			c.err = errNoShard
		}
	}
}

// evaluate runs a command by the methods that clients of all types have.
func (c *command) evaluate(ctx context.Context, client Client) {
	run := client.EvalSha
	if c.args[commandAt] == eval {
		run = client.Eval
	}
	script, _ := c.args[scriptAt].(string)
	end, _ := c.args[keysAt-1].(int)
	end += keysAt
	var keys []string
	for _, key := range c.args[keysAt:end] {
		keys = append(keys, key.(string)) //nolint:forcetypeassert // see newCommand
	}
	reply := run(ctx, script, keys, c.args[end:]...)
	if c.Plan.texts {
		c.texts, c.err = reply.StringSlice()
	} else {
		c.reply, c.err = reply.Int64Slice()
	}
}
