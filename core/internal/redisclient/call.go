package redisclient

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// command is one run of a script, and the questions that it asks.
type command struct {
	redis.Cmder

	firsts []*Question
}

// Indexes of a command's arguments.
const (
	commandAt = 0
	scriptAt  = 1
	keysAt    = 3
)

var evalSha, eval any = "evalsha", "eval"

// newCommand returns a command that has its keys as texts, which the client's hooks may read and keep.
func newCommand(ctx context.Context, p *Plan, firsts []*Question) command {
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
	if args = append(args, p.Tail...); p.Since {
		since := int64(0)
		if firsts[0].since != nil {
			since = firsts[0].since.Load()
		}
		args = append(args, since)
	}
	return command{newCmder(ctx, p, args), firsts}
}

func newCmder(ctx context.Context, p *Plan, args []any) redis.Cmder {
	if p.texts {
		cmd := redis.NewStringSliceCmd(ctx, args...)
		cmd.SetFirstKeyPos(keysAt)
		return cmd
	}
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

// ask asks questions, and sets Reply, or texts, and err of each.
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
			unknown = append(unknown, command{newCmder(ctx, p, args), cmd.firsts})
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
	var reply []int64
	var texts []string
	err := c.Err()
	switch cmd := c.Cmder.(type) {
	case *redis.StringSliceCmd:
		texts = cmd.Val()
	case *redis.IntSliceCmd:
		if reply = cmd.Val(); reply == nil && err == nil {
			err = errNoShard
		} else if last := len(reply) - 1; p.Since && last >= 0 {
			if since := c.firsts[0].since; since != nil {
				since.Store(reply[last])
			}
			reply = reply[:last]
		}
	}
	for i, q := range c.firsts {
		n := len(reply)
		if err == nil && p.Cut != nil {
			n = p.Cut(reply, q.StandsFor)
			if n < 0 || n > len(reply) || i == len(c.firsts)-1 && n < len(reply) {
				err = ProtocolError("a reply with %d numbers left where %d are due", len(reply), n)
			}
		}
		if q.err = err; err == nil {
			q.Reply, reply, q.texts = reply[:n:n], reply[n:], texts
		}
	}
}

// run runs commands.
func (c *Conn) run(ctx context.Context, cmds []command) {
	defer func() {
		// go-redis trusts the lengths that a server announces, and a hook may panic.
		if v := recover(); v != nil {
			for _, cmd := range cmds {
				cmd.SetErr(ProtocolError("the client has panicked: %v", v))
			}
		}
	}()
	switch {
	case len(cmds) == 0:
	case c.known == nil:
		for _, cmd := range cmds {
			cmd.evaluate(ctx, c.client)
		}
	case len(cmds) == 1:
		if err := c.known.Process(ctx, cmds[0].Cmder); err != nil {
			cmds[0].SetErr(err)
		}
	default:
		pipe := c.known.Pipeline()
		for _, cmd := range cmds {
			pipe.Process(ctx, cmd.Cmder) //nolint:errcheck // Exec sends it
		}
		pipe.Exec(ctx) //nolint:errcheck // each command has its own error
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
	reply := run(ctx, script, keys, c.Args()[keysAt+len(keys):]...)
	var err error
	switch cmd := c.Cmder.(type) {
	case *redis.StringSliceCmd:
		var texts []string
		texts, err = reply.StringSlice()
		cmd.SetVal(texts)
	case *redis.IntSliceCmd:
		var numbers []int64
		numbers, err = reply.Int64Slice()
		cmd.SetVal(numbers)
	}
	c.SetErr(err)
}
