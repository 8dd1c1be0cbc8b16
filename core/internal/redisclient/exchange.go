package redisclient

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// serverTime is the time of a server, in microseconds, when it executed the latest command whose reply has arrived.
//
// A client may send a command twice. To find out whether it was executed before, the script of takes looks at the
// entries that the log has since that time, which comes with the command. A server executes nothing if its clock is
// earlier, so no entry of the command is older.
type serverTime struct{ atomic.Int64 }

// slack is how much earlier the time is that comes with commands to several servers, whose clocks differ.
const slack = time.Second

// since returns what comes with the next command.
func (s *serverTime) since(several bool) int64 {
	at := s.Load()
	if several {
		at = max(0, at-slack.Microseconds())
	}
	return at
}

// exchange runs calls of the batcher's script, as conn.do does.
func (b *batcher) exchange(ctx context.Context, calls ...*call) error {
	err := b.conn.do(ctx, calls...)
	if err != nil || !b.Since {
		return err
	}
	var refused []*call
	for _, q := range calls {
		if q.err == nil && len(q.reply) == 1 {
			q.args = slices.Clone(q.args) // the client may still hold the old ones
			q.args[len(q.args)-1] = int64(0)
			refused = append(refused, q)
		}
	}
	if refused != nil {
		if err = b.conn.do(ctx, refused...); err != nil {
			return err
		}
	}
	for _, q := range calls {
		if q.err != nil {
			continue
		}
		if n := len(q.reply) - 1; n < 1 {
			q.err = ProtocolError("a reply of %d numbers", n+1)
		} else {
			b.clock.Store(max(0, q.reply[n]))
			q.reply = q.reply[:n]
		}
	}
	return nil
}
