package core

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/store"
)

const defaultMaxKeys = 262_144

// MemoryStore keeps the logs in this process. It is exact and uses the monotonic clock. A key takes about 230 bytes,
// which hold seven admitted requests, and 8 to 16 bytes for each further one; three times that if requests cost more
// than a unit or are corrected.
//
// It need not be closed. New keys sweep a few other keys, and while there are keys a timer sweeps all of
// them, in short steps. The memory of an idle key is freed within two of its longest windows and a minute, with or
// without traffic, and so is the memory that a remaining log needed for a burst. A store that is no longer referenced
// is collected although its timer is pending.
//
// # Places
//
// The number of keys with a log of their own is limited; see [WithMaxKeys]. A log with live entries is never evicted,
// because a client could otherwise reset its own log by sending enough keys. When all places are taken, further keys of
// a policy share some logs: each still within its quota, but denied early if the keys that it shares with are busy.
// [MemoryStore.Shared] counts such requests. The number of shared logs is bounded as well: at most 5,120 a policy, and
// they are freed when they are idle.
//
// Addresses share logs by prefix, IPv6 by /32 and IPv4 by /16, and share none with texts. So a flood of addresses from
// one such prefix fills one in 64 of the logs that addresses share, and denies that part of new clients. A client that
// has a log of its own is not affected. The remedy is a larger [WithMaxKeys]. Keys that are not addresses have no known
// origin: verify texts that clients can choose.
type MemoryStore struct {
	logs      *memory.Store
	overrides *memory.Overrides
}

// MemoryOption changes a [MemoryStore].
type MemoryOption func(*memoryConfig)

type memoryConfig struct {
	maxKeys int
}

// WithMaxKeys sets how many keys have a log of their own at once, at least 1. The default is 262,144.
func WithMaxKeys(n int) MemoryOption {
	return func(c *memoryConfig) { c.maxKeys = n }
}

// NewMemoryStore makes a store for one or more limiters of this process. Without [WithStore], a limiter makes its own.
func NewMemoryStore(opts ...MemoryOption) *MemoryStore {
	c := memoryConfig{maxKeys: defaultMaxKeys}
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	return &MemoryStore{logs: memory.New(c.maxKeys), overrides: new(memory.Overrides)}
}

// Keys returns how many keys have a log of their own now.
func (s *MemoryStore) Keys() int { return s.logs.Keys() }

// Shared returns how many requests have drawn from a log that their key shares with others, since the store was made.
// If it grows, more clients are active than [WithMaxKeys] allows, or very many have addresses in one prefix.
func (s *MemoryStore) Shared() uint64 { return s.logs.Shared() }

// Validate implements [store.Store]. This store serves all limits: an error is about [NewMemoryStore] or its options.
func (s *MemoryStore) Validate(...*store.Limit) error {
	if s.logs == nil {
		return configError("MemoryStore", "zero", "the zero MemoryStore cannot be used", "use core.NewMemoryStore")
	}
	if n := s.logs.MaxKeys(); n < 1 {
		return configError("WithMaxKeys", strconv.Itoa(n), "the number of keys is below 1", "choose 1 or more")
	}
	return nil
}

// Take implements [store.Store]. It ignores the context.
func (s *MemoryStore) Take(_ context.Context, takes []store.Take, answers []store.Answer) error {
	err := store.ValidateTakes(takes, answers)
	if err == nil {
		s.logs.Take(takes, answers)
	}
	return err
}

// Settle implements [store.Settler].
func (s *MemoryStore) Settle(_ context.Context, t store.Settlement) error {
	return withKey(&t.Key, func() { s.logs.Settle(&t) })
}

// Renew implements [store.Renewer].
func (s *MemoryStore) Renew(_ context.Context, r store.Renewal) error {
	return withKey(&r.Key, func() { s.logs.Renew(&r) })
}

// Log implements [store.Lister].
func (s *MemoryStore) Log(_ context.Context, key store.Key, l *store.Limit) (entries []store.Entry, err error) {
	err = withKey(&key, func() { entries = s.logs.Log(&key, l) })
	return entries, err
}

// Merge implements [store.Merger].
func (s *MemoryStore) Merge(_ context.Context, m store.MergeRequest) error {
	return withKey(&m.Key, func() { s.logs.Merge(&m) })
}

// Reset implements [store.Store]. Of logs that the key shares it removes what the key has there, unless their algorithm
// counts: then it does nothing, because other keys count in them as well.
func (s *MemoryStore) Reset(_ context.Context, key store.Key, limits []*store.Limit, young time.Duration) error {
	return withKey(&key, func() { s.logs.Reset(&key, limits, young) })
}

// withKey does something with the logs of a key that is not zero.
func withKey(key *store.Key, do func()) error {
	err := key.Validate()
	if err == nil {
		do()
	}
	return err
}

// SetOverride implements [store.Overrider].
func (s *MemoryStore) SetOverride(_ context.Context, policy string, o store.Override) error {
	return s.overrides.Set(policy, o)
}

// Overrides implements [store.Overrider].
func (s *MemoryStore) Overrides(
	_ context.Context, policy, known string,
) (version string, all []store.Override, err error) {
	version, all = s.overrides.All(policy, known)
	return version, all, nil
}

// String describes the store in one line.
func (s *MemoryStore) String() string { return line("MemoryStore", s.attrs()) }

// Format implements [fmt.Formatter]: every verb prints String, without the contents of the store.
func (s *MemoryStore) Format(f fmt.State, verb rune) { format(f, verb, s.String()) }

// LogValue implements [slog.LogValuer] with the attributes that String prints.
func (s *MemoryStore) LogValue() slog.Value { return slog.GroupValue(s.attrs()...) }

func (s *MemoryStore) attrs() []slog.Attr {
	if s == nil || s.logs == nil {
		return nil
	}
	return []slog.Attr{slog.Int("keys", s.Keys()), slog.Int("max_keys", s.logs.MaxKeys())}
}
