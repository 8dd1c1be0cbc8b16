package redisclient

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// call is one run of a script.
type call struct {
	script Script
	args   []any // of the command: see newCall
	keys   int   // how many of args are keys
	reply  []int64
	err    error
}

// Indexes of a command's arguments.
const (
	commandAt = 0
	scriptAt  = 1
	keysAt    = 3
)

var evalSha, eval any = "evalsha", "eval"

// newCall returns a call with room for keys and arguments, from keysAt on.
func newCall(sc Script, keys, args int) call {
	var q call
	q.init(sc, keys, make([]any, keysAt+keys+args))
	return q
}

// init begins a call whose command is args.
func (q *call) init(sc Script, keys int, args []any) {
	*q = call{script: sc, keys: keys, args: args}
	q.args[commandAt], q.args[scriptAt], q.args[keysAt-1] = evalSha, sc.hash, keys
}

// byText makes the call send the script's text, for a server that does not know its hash: one that has not run the
// script since it started, after SCRIPT FLUSH, or after a failover.
func (q *call) byText() {
	q.args = slices.Clone(q.args) // the client may still hold the old ones
	q.args[commandAt], q.args[scriptAt] = eval, q.script.text
}

func (q *call) command(ctx context.Context) *redis.IntSliceCmd {
	cmd := redis.NewIntSliceCmd(ctx, q.args...) // reads numbers without an allocation for each
	cmd.SetFirstKeyPos(keysAt)
	return cmd
}
