package redisclient

import (
	"context"
	"sync"
)

// take is a take of one caller, on its way to the server and back.
type take struct {
	ctx  context.Context
	key  string   // of its log; of several logs, their keys in a row, which no other logs have
	keys []string // of several logs
	id   string
	cost int

	own  call          // the command, if the take is sent by itself
	done chan struct{} // receives a value when the fields below are set

	next    *take  // in a list of a queue
	arrival uint64 // its number among all takes of a queue

	reply []int64 // of its group
	takes int     // how many takes the group has
	place int     // of this one in the group, from 0 on
	err   error
}

// takePool has takes that were answered. A take whose caller has given up does not return to it, because a client may
// still hold its command.
var takePool = sync.Pool{New: func() any { return &take{done: make(chan struct{}, 1)} }}

// appendKeys appends the keys of the take's logs.
func (t *take) appendKeys(all []string) []string {
	if t.keys == nil {
		return append(all, t.key)
	}
	return append(all, t.keys...)
}

// logs returns how many logs the take is about.
func (t *take) logs() int { return max(1, len(t.keys)) }

// gaveUp reports whether the take's caller waits no longer.
func (t *take) gaveUp() bool { return t.ctx.Err() != nil }
