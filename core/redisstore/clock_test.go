package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/redisstore"
)

// processor is a client that takes commands whole, as all of go-redis' do.
type processor interface {
	redisstore.Client
	Process(ctx context.Context, cmd redis.Cmder) error
}

// clock runs the store's scripts at an instant of its own.
type clock struct {
	processor
	*redistest.Clock
}

// newClock returns a client that runs scripts at an instant of its own. The server gets their hashes, since a test may
// send 100,000 of them.
func newClock(c processor) clock {
	if rdb, ok := c.(*redis.Client); ok {
		c = newHashed(rdb)
	}
	return clock{c, redistest.NewClock()}
}

// newStore makes a store that gives the client its commands whole, as it does with go-redis' own.
func newStore(c processor) core.Store { return redisstore.WithProcess(redisstore.New(c), c.Process) }

func (c clock) Process(ctx context.Context, cmd redis.Cmder) error {
	args := cmd.Args()
	if args[0] == "evalsha" {
		cmd.SetErr(redistest.ErrNoScript)
		return cmd.Err()
	}
	var keys []string
	n := args[2].(int)
	for _, k := range args[3 : 3+n] {
		if pointer, ok := k.(*string); ok {
			k = *pointer
		}
		keys = append(keys, k.(string))
	}
	text, keys := c.Script(args[1].(string), keys)
	command := redis.NewIntSliceCmd(ctx, "eval", text, len(keys))
	all := command.Args()
	for _, k := range keys {
		all = append(all, k)
	}
	if all = append(all, args[3+n:]...); strings.Contains(text, "-- entries\n") {
		all[len(all)-3] = 7 // entries, so that short logs have several parts
	}
	command = redis.NewIntSliceCmd(ctx, all...)
	err := c.processor.Process(ctx, command)
	cmd.(*redis.IntSliceCmd).SetVal(command.Val())
	cmd.SetErr(err)
	return err
}

// twice executes every command twice, as a client does that has lost a reply,
// and goes on with the second answer. The verdict must be the same; that the numbers are
// right is for the suite to find out, where nobody comes in between.
type twice struct {
	processor
	t *testing.T

	// Others may add and remove units in between, so that what was denied is admitted the second time, and a peek is
	// answered as the log is then.
	undone bool
}

func (c twice) Process(ctx context.Context, cmd redis.Cmder) error {
	err := c.processor.Process(ctx, cmd)
	first := cmd.(*redis.IntSliceCmd).Val()
	if again := c.processor.Process(ctx, cmd); err == nil {
		second := cmd.(*redis.IntSliceCmd).Val()
		same := len(first) == 0 || verdict(cmd, first) == verdict(cmd, second) ||
			verdict(cmd, second) == askedAgain // a take of others has given the log a mark in between
		if again != nil || !same && (!c.undone || verdict(cmd, first) > 0 && !peeks(cmd)) {
			c.t.Errorf("the same command answered %v, then %v, %v", first, second, again)
		}
		return again
	}
	return err
}

// peeks reports whether a command records nothing.
func peeks(cmd redis.Cmder) bool {
	return slices.ContainsFunc(cmd.Args(), func(arg any) bool {
		return arg == "p" || arg == "vp" || arg == "P" || arg == "VP"
	})
}

// askedAgain is the verdict of a script that leaves a log with a mark to another one, which is then asked.
const askedAgain = -1

// verdict is how many of the first key's takes were admitted, or how many units were booked.
func verdict(cmd redis.Cmder, reply []int64) int64 {
	args := cmd.Args()
	n := args[2].(int)
	keys := n - 2 // but for the clock's two
	if joins(cmd) {
		return jointVerdict(args[3+n:], keys, reply)
	}
	if !takes(cmd) && !runs(cmd, streamTakeText) && !(runs(cmd, redisstore.BookText) && !books(args[3+n])) {
		return reply[0]
	}
	if isShortForm(args[3+n+keys]) {
		if reply[0] == 0 {
			return reply[1]
		}
		limits := (len(args) - 3 - n - keys - 1) / 2
		return max(0, min(slices.Min(reply[:limits]), 1))
	}
	return reply[0]
}

// books reports whether an argument is a booking.
func books(arg any) bool {
	if text, ok := arg.(*string); ok {
		arg = *text
	}
	text, _ := arg.(string)
	return len(text) == 46
}

// isShortForm reports whether a question has the short form, of which arg is the first argument after the ids.
func isShortForm(arg any) bool {
	if _, isTTL := arg.(int64); isTTL {
		return true
	}
	return kindOf(arg) != ""
}

// kindOf tells short forms with a letter apart: "peek, ", "varied, " or both; "" for all others.
func kindOf(arg any) string {
	text, _ := arg.(string)
	switch {
	case text == "P":
		return "peek, "
	case text == "VP":
		return "varied, peek, "
	case strings.HasPrefix(text, "V"):
		return "varied, "
	}
	return ""
}

// takes reports whether a command decides takes of one log each.
func takes(cmd redis.Cmder) bool {
	return runs(cmd, redisstore.TakeText) || runs(cmd, redisstore.TakeSeveralText) ||
		runs(cmd, redisstore.TakeVariedText) || runs(cmd, redisstore.TakeWeightedText)
}

// joins reports whether a command decides requests over several logs.
func joins(cmd redis.Cmder) bool {
	return runs(cmd, redisstore.JointText) || runs(cmd, redisstore.JointSeveralText) ||
		runs(cmd, redisstore.JointWeightedText)
}

// runs reports whether a command runs this script.
func runs(cmd redis.Cmder, script string) bool {
	text, _ := cmd.Args()[1].(string)
	name, _, _ := strings.Cut(script, "\n")
	return strings.Contains(text, name+"\n")
}

// jointVerdict is how many of the takes were admitted that have the first logs, of a script with so many keys.
func jointVerdict(args []any, keys int, reply []int64) int64 {
	logs := args[len(args)-1].(int)
	plan := args[keys/logs:]
	if !isShortForm(plan[1]) {
		return reply[0]
	}
	if reply[0] == 0 {
		return reply[1]
	}
	numbers := 0
	for range logs {
		limits, err := strconv.Atoi(fmt.Sprint(plan[0])) // of slots it is text
		if err != nil {
			panic(err)
		}
		numbers += limits
		plan = plan[2+2*limits:]
	}
	return max(0, min(slices.Min(reply[:numbers]), 1))
}
