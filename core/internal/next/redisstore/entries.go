package redisstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"strconv"
	"time"

	"github.com/sashlimit/sash/core/internal/next/redisclient"
	"github.com/sashlimit/sash/core/internal/next/store"
)

// Settle implements [store.Settler]. Settlements of one take follow each other.
func (s *redisStore) Settle(ctx context.Context, t store.Settlement) error {
	if err := t.Key.Validate(); err != nil {
		return err
	}
	if t.Limit.Permits && t.Cost > 0 {
		return nil // it counts 1 whatever it costs
	}
	key := s.key(&t.Key, t.Limit)
	b := appendChange([]byte(key), t.ID, t.Was, t.Cost, t.Age)
	take, done := string(b[:len(key)+8]), make(chan struct{})
	for {
		other, busy := s.settling.LoadOrStore(take, done)
		if !busy {
			break
		}
		select {
		case <-other.(chan struct{}): //nolint:forcetypeassert // see above
		case <-ctx.Done():
			return s.Failed(ctx.Err())
		}
	}
	defer close(done)
	defer s.settling.Delete(take)
	if isCounter(t.Limit) {
		return s.settleCounter(ctx, key, &t)
	}
	if t.Age >= t.Limit.Window {
		b = b[:len(b)-8] // without the age, the log is not searched
	}
	q := redisclient.NewQuestion(string(b), len(key))
	defer q.Free()
	return s.Do(ctx, &s.settlements, q)
}

func (s *redisStore) settleCounter(ctx context.Context, key string, t *store.Settlement) error {
	witness := key + ":" + strconv.FormatUint(t.ID, 36)
	args := append(arguments(t.Limit), t.Was, t.Cost, t.Period/1000, t.Period%1000)
	_, err := s.Run(ctx, settleCounter, []string{key, witness}, args...)
	return err
}

// atOnce is how many entries one run of a script lists, merges or renews, so that it does not keep the server busy for
// long.
const atOnce = 500

// Merge implements [store.Merger].
func (s *redisStore) Merge(ctx context.Context, m store.MergeRequest) error {
	if err := m.Key.Validate(); err != nil {
		return err
	}
	key := s.key(&m.Key, m.Limit)
	for part := range slices.Chunk(m.Entries, atOnce) {
		keys := make([]string, 0, len(part))
		args := make([]any, 0, len(part)+2)
		for _, e := range part {
			keys = append(keys, key)
			args = append(args, string(appendChange(nil, e.ID, cmp.Or(e.Sent, e.Cost), e.Cost, e.Age)))
		}
		args = append(args, m.Limit.Window.Microseconds(), ttl(m.Limit))
		if _, err := s.Run(ctx, settle, keys, args...); err != nil {
			return err
		}
	}
	return nil
}

// appendChange appends the argument of the script settle for one take.
func appendChange(b []byte, id uint64, was, cost int, age time.Duration) []byte {
	b = appendUnits(appendUnits(binary.BigEndian.AppendUint64(b, id), was), cost)
	return binary.BigEndian.AppendUint64(b, uint64(max(age, 0).Microseconds()))
}

// Renew implements [store.Renewer].
func (s *redisStore) Renew(ctx context.Context, r store.Renewal) error {
	if err := r.Key.Validate(); err != nil {
		return err
	}
	keys := []string{s.key(&r.Key, r.Limit)}
	for part := range slices.Chunk(r.IDs, atOnce) {
		args := []any{ttl(r.Limit)}
		for _, id := range part {
			args = append(args, string(binary.BigEndian.AppendUint64(nil, id)))
		}
		if _, err := s.Run(ctx, renew, keys, args...); err != nil {
			return err
		}
	}
	return nil
}

// Log implements [store.Lister]. The log may change between two parts.
func (s *redisStore) Log(ctx context.Context, key store.Key, l *store.Limit) ([]store.Entry, error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	keys, all, last, same := []string{s.key(&key, l)}, make([]store.Entry, 0), int64(0), 0
	for {
		reply, err := s.Run(ctx, entries, keys, l.Window.Microseconds(), last, same, atOnce)
		if err != nil {
			return nil, err
		}
		if len(reply)%2 != 0 {
			return nil, s.Failed(redisclient.ProtocolError("a log of %d numbers", len(reply)))
		}
		for i := 0; i < len(reply); i += 2 {
			if reply[i] != last {
				last, same = reply[i], 0
			}
			same++
			all = append(all, store.Entry{At: time.UnixMicro(last), Cost: int(reply[i+1])})
		}
		if len(reply) < 2*atOnce {
			return all, nil
		}
	}
}

// Reset implements [store.Store].
func (s *redisStore) Reset(ctx context.Context, key store.Key, limits []*store.Limit, young time.Duration) error {
	if err := key.Validate(); err != nil || len(limits) == 0 {
		return err
	}
	var keys []string
	var ages []any
	for _, l := range limits {
		keys = append(keys, s.key(&key, l))
		age := max(young, 0).Microseconds()
		if isCounter(l) {
			age = 0
		}
		ages = append(ages, age)
	}
	_, err := s.Run(ctx, reset, keys, ages...)
	return err
}
