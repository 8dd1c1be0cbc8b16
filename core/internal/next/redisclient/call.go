package redisclient

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// command is one run of a script.
type command struct {
	script *Script
	args   []any // EVALSHA or EVAL, the script, the number of keys, the keys, the arguments
	keys   int
	firsts []*Question // that it is about

	reply []int64
	texts []string
	err   error
}

// The arguments of a command.
const (
	commandAt = 0
	scriptAt  = 1
	keysAt    = 3
)

var evalSha, eval any = "evalsha", "eval"

func newCommand(p *Plan, firsts []*Question) *command {
	c := &command{script: p.Script, firsts: firsts}
	c.args = make([]any, keysAt, keysAt+len(firsts)*(len(firsts[0].Keys)+1)+len(p.Tail))
	for _, q := range firsts {
		for _, key := range q.Keys {
			c.args = append(c.args, key)
		}
	}
	c.keys = len(c.args) - keysAt
	for _, q := range firsts {
		if argument := q.argument(); argument != "" {
			c.args = append(c.args, argument)
		}
	}
	c.args = append(c.args, p.Tail...)
	c.args[commandAt], c.args[scriptAt], c.args[keysAt-1] = evalSha, p.Script.hash(), c.keys
	return c
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

// byText makes the command send the script's text, for a server that does not know its hash: one that has not run the
// script since it started, after SCRIPT FLUSH, or after a failover.
func (c *command) byText() {
	c.args = slices.Clone(c.args) // a hook of the client may still hold the old ones
	c.args[commandAt], c.args[scriptAt] = eval, c.script.text
}

// send asks questions, and sets Reply, or texts, and err of each.
func (c *Conn) send(ctx context.Context, p *Plan, firsts []*Question) {
	each := 1
	if c.one {
		each = len(firsts)
	}
	c.sendBy(ctx, p, firsts, each)
	if len(firsts) > 1 && c.one && firsts[0].err != nil && c.diagnose(firsts[0].err).OneKey {
		c.sendBy(ctx, p, firsts, 1) // which key it is, the error does not say
	}
	for _, q := range firsts {
		q.err = c.Failed(q.err)
	}
	if firsts[0].err == nil {
		c.answered.Store(true)
	}
}

// sendBy has each command ask so many questions.
func (c *Conn) sendBy(ctx context.Context, p *Plan, firsts []*Question, each int) {
	var cmds []*command
	for some := range slices.Chunk(firsts, each) {
		cmds = append(cmds, newCommand(p, some))
	}
	c.run(ctx, p, cmds)
	var unknown []*command
	for _, cmd := range cmds {
		if cmd.err != nil && redis.HasErrorPrefix(cmd.err, "NOSCRIPT") {
			cmd.byText()
			unknown = append(unknown, cmd)
		}
	}
	c.run(ctx, p, unknown)
	for _, cmd := range cmds {
		cmd.answer(p)
	}
}

// answer cuts the reply for the questions.
func (c *command) answer(p *Plan) {
	for i, q := range c.firsts {
		n := len(c.reply)
		if c.err == nil && p.Cut != nil {
			n = p.Cut(c.reply, q.StandsFor)
			if n < 0 || n > len(c.reply) || i == len(c.firsts)-1 && n < len(c.reply) {
				c.err = ProtocolError("a reply of which %d numbers are left, where %d are due", len(c.reply), n)
			}
		}
		if q.err = c.err; c.err == nil {
			q.Reply, c.reply, q.texts = c.reply[:n:n], c.reply[n:], c.texts
		}
	}
}

// run runs commands, and sets reply, or texts, and err of each.
func (c *Conn) run(ctx context.Context, p *Plan, cmds []*command) {
	defer func() {
		// go-redis trusts the lengths that a server announces, and a hook may panic.
		if v := recover(); v != nil {
			for _, cmd := range cmds {
				cmd.err = ProtocolError("the client has panicked: %v", v)
			}
		}
	}()
	switch {
	case len(cmds) == 0:
	case c.process == nil:
		for _, cmd := range cmds {
			c.evaluate(ctx, p, cmd)
		}
	case len(cmds) == 1:
		made := cmds[0].make(ctx, p)
		cmds[0].set(made, c.process(ctx, made))
	default:
		pipe := c.pipeline()
		made := make([]redis.Cmder, len(cmds))
		for i, cmd := range cmds {
			made[i] = cmd.make(ctx, p)
			pipe.Process(ctx, made[i]) //nolint:errcheck // it is queued
		}
		pipe.Exec(ctx) //nolint:errcheck // each command has its own error
		for i, cmd := range cmds {
			cmd.set(made[i], made[i].Err())
		}
	}
}

// make returns the command for go-redis. It has the keys as texts, which hooks may read.
func (c *command) make(ctx context.Context, p *Plan) redis.Cmder {
	if p.texts {
		cmd := redis.NewStringSliceCmd(ctx, c.args...)
		cmd.SetFirstKeyPos(keysAt)
		return cmd
	}
	cmd := redis.NewIntSliceCmd(ctx, c.args...) // reads numbers without an allocation for each
	cmd.SetFirstKeyPos(keysAt)
	return cmd
}

// set sets what has become of the command.
func (c *command) set(cmd redis.Cmder, err error) {
	switch cmd := cmd.(type) {
	case *redis.StringSliceCmd:
		c.texts, c.err = cmd.Val(), err
	case *redis.IntSliceCmd:
		if c.reply, c.err = cmd.Val(), err; c.reply == nil && err == nil {
			c.err = errNoShard
		}
	}
}

// evaluate runs a command by the methods that clients of all types have.
func (c *Conn) evaluate(ctx context.Context, p *Plan, cmd *command) {
	keys := make([]string, cmd.keys)
	for i := range keys {
		keys[i], _ = cmd.args[keysAt+i].(string)
	}
	run := c.client.EvalSha
	if cmd.args[commandAt] == eval {
		run = c.client.Eval
	}
	script, _ := cmd.args[scriptAt].(string)
	reply := run(ctx, script, keys, cmd.args[keysAt+cmd.keys:]...)
	if p.texts {
		cmd.texts, cmd.err = reply.StringSlice()
	} else {
		cmd.reply, cmd.err = reply.Int64Slice()
	}
}
