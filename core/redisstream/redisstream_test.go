package redisstream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/redisserver"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/redisstream"
	"github.com/sashlimit/sash/core/store"
)

// What needs the clock of a server or its commands is tested in package redisstore, beside the same for sorted sets.

func start(t *testing.T) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: redisserver.Start(t).Addr()})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// All mistakes in options are reported, by the name of this package.
func TestOptionMistakes(t *testing.T) {
	err := redisstream.New(nil, nil, redisstream.WithPrefix("B")).Validate()
	for _, want := range []string{"redisstream.New(nil)", `redisstream.WithPrefix("B")`} {
		if n := strings.Count(fmt.Sprint(err), want); n != 1 {
			t.Errorf("%d of %q in: %v", n, want, err)
		}
	}
}

// What a stream cannot do is an error when the limiter is made.
func TestWhatStreamsRefuse(t *testing.T) {
	s := redisstream.New(start(t))
	one := core.PerMinute(5)
	byTenant := core.By(func(context.Context) (string, error) { return "t", nil })
	for name, c := range map[string]struct {
		policy core.Policy
		opts   []core.Option
		want   string
	}{
		"several limits": {core.Limits{one, core.PerHour(50)}, nil, "limits(2)"},
		"several keys":   {core.Limits{one, core.PerHour(50).By(byTenant)}, nil, "limits(2)"},
		"in flight":      {core.InFlight(3), nil, "permits"},
		"a bucket":       {core.TokenBucket(one, 9), nil, "token bucket"},
		"WithLease":      {one, []core.Option{core.WithLease(20 * time.Millisecond)}, "a lease"},
		"WithBan":        {one, []core.Option{core.WithBan(3, time.Minute, time.Minute)}, "one log"},
	} {
		_, err := core.New(c.policy, core.ByText(), append(c.opts, core.WithStore(s))...)
		if !errors.As(err, new(*core.ConfigError)) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want a ConfigError with %q", name, err, c.want)
		}
	}
}

// What can only be known of a call is an error of that call, and nothing is recorded.
func TestWhatCallsOfStreamsRefuse(t *testing.T) {
	rdb := start(t)
	s := redisstream.New(rdb)
	l, err := core.New(core.PerMinute(5), core.ByText(), core.WithStore(s), core.WithCountDenied(),
		core.WithName("calls"), core.WithTimeout(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	_, costly := l.AllowN(t.Context(), "k", 2)
	_, atMost := l.AllowAtMost(t.Context(), "k", 2)
	d, err := l.Allow(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	limit := &store.Limit{Log: "log", Quota: 5, Window: time.Minute}
	other := &store.Limit{Log: "other", Quota: 5, Window: time.Minute}
	key := store.NewKey("p", "k")
	merged := store.MergeRequest{Key: key, Limit: limit, Entries: []store.Entry{{ID: 1, Cost: 2}}}
	for name, err := range map[string]error{
		"AllowN":      costly,
		"AllowAtMost": atMost,
		"Settle":      d.Settle(t.Context(), 2),
		"Merge":       s.(store.Merger).Merge(t.Context(), merged),
		"two limits": s.Take(t.Context(), []store.Take{
			{Key: key, Limit: limit, Cost: 1, ID: 1}, {Key: key, Limit: other, Cost: 1, ID: 1},
		}, make([]store.Answer, 2)),
	} {
		if !errors.As(err, new(*core.ConfigError)) {
			t.Errorf("%s: %v, want a ConfigError", name, err)
		}
	}
	if n := len(rdb.Keys(t.Context(), "*").Val()); n != 1 {
		t.Errorf("%d keys, want the one of the take that was admitted", n)
	}
	if err := d.Settle(t.Context(), 1); err != nil {
		t.Error(err)
	}
}

// Limits that a request chooses, shadows and overrides have streams of their own.
func TestWhatStreamsCanDo(t *testing.T) {
	rdb := start(t)
	denied := 0
	l, err := core.New(core.LimitBy(func(context.Context) core.Limits { return core.Limits{core.PerMinute(2)} }),
		core.ByText(), core.WithStore(redisstream.New(rdb)), core.WithName("can"), core.WithOverrides(),
		core.WithShadow(core.PerHour(1)), core.WithTimeout(10*time.Second),
		core.WithObserver(func(_ context.Context, e core.Event) {
			if e.Shadow != nil && !e.Shadow.Allowed {
				denied++
			}
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	allow := func(what string, want bool) {
		t.Helper()
		if d, err := l.Allow(t.Context(), "k"); err != nil || d.Degraded || d.Allowed != want {
			t.Errorf("%s: %+v, %v; want %v", what, d, err, want)
		}
	}
	allow("first", true)
	allow("second", true)
	allow("third", false)
	if denied == 0 {
		t.Error("the shadow has denied nothing")
	}
	for _, o := range []core.Override{
		{Unlimited: true}, {Limits: core.Limits{core.PerSecond(9)}}, {Limits: core.Limits{core.PerHour(9)}},
	} {
		o.Until = time.Now().Add(time.Hour)
		if err := l.Override(t.Context(), "k", o); err != nil {
			t.Error(err)
		}
		allow(fmt.Sprint(o), true)
	}
}

// A stream and a sorted set are different logs, also under one prefix, and a stream of many units takes a third of the
// memory at most.
func TestStreamsBesideSets(t *testing.T) {
	rdb := start(t)
	limit := &store.Limit{Log: "log", Quota: 1000, Window: time.Hour}
	key := store.NewKey("p", "k")
	for _, s := range []store.Store{redisstream.New(rdb), redisstore.New(rdb)} {
		for id := range uint64(1000) {
			takes, answers := []store.Take{{Key: key, Limit: limit, Cost: 1, ID: id + 1}}, make([]store.Answer, 1)
			if err := s.Take(t.Context(), takes, answers); err != nil || answers[0].Used != int(id) {
				t.Fatalf("%+v, %v; want %d used", answers, err, id)
			}
		}
	}
	bytes := make(map[string]int64)
	for _, stored := range rdb.Keys(t.Context(), "*").Val() {
		bytes[rdb.Type(t.Context(), stored).Val()] = rdb.MemoryUsage(t.Context(), stored, 0).Val() / 1000
	}
	t.Logf("bytes a unit: %v", bytes)
	if len(bytes) != 2 || bytes["stream"] == 0 || bytes["stream"] > bytes["zset"]/3 {
		t.Errorf("bytes a unit: %v", bytes)
	}
}
