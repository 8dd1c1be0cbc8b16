package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// WithStream keeps each log in a Redis stream instead of a sorted set, which saves memory where a quota is large:
// Redis keeps a sorted set of more than 128 entries as a skiplist. Bytes a unit when the quota is used up, the key
// included, as measured with Redis 7.0:
//
//	quota          10    100   1,000   10,000
//	sorted set     38     22     110      121
//	stream        441     44      28       26
//
// Where the units of a log are minutes apart, as 1,000 in a month, a unit takes 33 bytes, because their times take more
// digits. A check takes about one and a half times as much of Redis' CPU. So choose it for quotas above 128 where
// memory counts more than CPU, and leave it out for small quotas: each stream takes 4 kB at least.
//
// The decisions are the same, to the microsecond. But a stream has the log of one limit, which is always the same, and
// each take costs one unit. Anything else is a [store.ConfigError]: when the limiter is made, for several limits, also
// if they have keys of their own, and for core.LimitBy, core.InFlight, core.WithShadow and core.WithBan; when it is
// asked for, for a cost above 1 (also above the quota), and for settling to more than 1.
//
// A unit that is given back, as by core.WithRefund, is looked for from the newest on, and its bytes stay until the
// units recorded next to it have left, up to a hundred. So this option is not for limiters that give most units back.
//
// A log in a sorted set becomes a stream, without a loss, when a store with this option first uses it; that takes
// about 3 µs for each entry. A set with takes of more than one unit is refused instead, and so is a stream by a store
// without this option: the [store.StoreError] has [ClassType] and tells what to do, and core.WithFailure decides about
// such a key and those that are asked about in the same batch. In a rolling deploy that adds the option, this happens
// in the processes that do not have it yet; in one that removes it, in the new ones, until the key has expired or was
// reset. To begin with new logs instead, give the store another prefix, or the limiter another name.
func WithStream() Option {
	return func(s *redisStore) {
		if s.batchers.stream {
			s.faults = append(s.faults, streamError("twice", "the option is given twice", "remove one"))
		}
		s.batchers.stream = true
	}
}

// streamStore is a store whose logs are streams. It has no methods for what these cannot do, so that a limiter which
// needs it is not made.
type streamStore struct{ logs *redisStore }

// LogsOf does the same as for other stores of this package: both kinds have the same keys.
func (s *streamStore) LogsOf() (client any, prefix string) { return s.logs.LogsOf() }

// Batches implements [store.Batcher].
func (s *streamStore) Batches() store.Batches { return s.logs.Batches() }

func (s *streamStore) Validate(p *store.Plan) error {
	return errors.Join(s.logs.Validate(p), checkStreamPlan(p))
}

func streamError(value, problem, remedy string) error {
	return &store.ConfigError{Option: "redisstore.WithStream", Value: value, Problem: problem, Remedy: remedy}
}

const oneLimit = "a stream has the log of one limit"

// checkStreamPlan returns an error for a plan that a stream cannot serve.
func checkStreamPlan(p *store.Plan) error {
	switch {
	case p.Slots:
		return streamError("requests in flight", "slots cannot be renewed in a stream",
			"give the limit core.InFlight to a limiter of its own, on a store without WithStream")
	case p.Varies, len(p.Limits) == 0:
		return streamError("limits of requests", oneLimit+", which is always the same",
			"leave WithStream out where core.LimitBy or rules choose the limits")
	case len(p.Limits) > 1, p.Shadow > 0:
		return streamError(strconv.Itoa(len(p.Limits))+" limits", oneLimit,
			"make a limiter for each limit, or leave WithStream out; core.WithBan and core.WithShadow add limits, too")
	case counts(p):
		return streamError(p.Algorithm().String(), oneLimit,
			"leave WithStream out where limits have other algorithms or follow the calendar")
	case p.Keep > p.Limits[0].Window:
		return streamError("entries that stay for "+p.Keep.String(),
			"a stream keeps entries for the window of its limit, "+p.Limits[0].Window.String(), "leave WithStream out")
	}
	return nil
}

func checkStreamCost(cost int) error {
	if cost > 1 {
		return streamError(fmt.Sprintf("a cost of %d", cost), "each entry of a stream is one unit",
			"leave WithStream out where requests cost more")
	}
	return nil
}

func (s *streamStore) Take(ctx context.Context, t store.Take) (store.Answer, error) {
	if err := t.Validate(); err != nil {
		return store.Answer{}, err
	}
	if err := checkStreamPlan(t.Plan); err != nil {
		return store.Answer{}, err
	}
	if err := checkStreamCost(t.Cost); err != nil {
		return store.Answer{}, err
	}
	return s.logs.take(ctx, t)
}

func (s *streamStore) Reset(ctx context.Context, key store.Key) error { return s.logs.Reset(ctx, key) }

// Settle implements [store.Settler] for costs of 0 and 1. A take that is in the log costs 1 already.
func (s *streamStore) Settle(ctx context.Context, t store.Settlement) error {
	if err := checkStreamCost(t.Cost); err != nil {
		return err
	}
	if t.Cost == 1 {
		return t.Key.Validate()
	}
	_, err := s.logs.run(ctx, streamSettleScript, &t.Key, idText(t.ID))
	return err
}

func (s *streamStore) Log(ctx context.Context, key store.Key, window time.Duration) ([]store.Entry, error) {
	return s.logs.log(ctx, streamEntriesScript, key, window)
}

// Merge implements [store.Merger] for entries of one unit.
func (s *streamStore) Merge(ctx context.Context, m store.MergeRequest) error {
	if m.Varies {
		return checkStreamPlan(&store.Plan{Varies: true})
	}
	for i := range m.Entries {
		if err := checkStreamCost(m.Entries[i].Cost); err != nil {
			return err
		}
	}
	return s.logs.merge(ctx, streamMergeScript, m)
}
