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
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/redisstream"
	"github.com/sashlimit/sash/core/store"
)

// What needs the clock of a server or its commands is tested in package redisstore, beside the same for sorted sets.

// planOf returns the plan of limits, with p's other fields.
func planOf(limits core.Limits, p store.Plan) *store.Plan {
	for _, l := range limits {
		p.Limits = append(p.Limits, store.Limit{Quota: l.Quota, Window: l.Window})
	}
	return store.NewPlan(p)
}

// All mistakes in options are reported, by the name of this package.
func TestOptionMistakes(t *testing.T) {
	err := redisstream.New(nil, redisstream.WithPrefix("a"), nil, redisstream.WithPrefix("B")).Validate(
		planOf(core.Limits{core.PerHour(1)}, store.Plan{}))
	for _, want := range []string{
		"redisstream.New(nil option)", "redisstream.New(nil)", "redisstream.WithPrefix(twice)",
		`redisstream.WithPrefix("B")`,
	} {
		if n := strings.Count(fmt.Sprint(err), want); n != 1 {
			t.Errorf("%d of %q in: %v", n, want, err)
		}
	}
}

// What a stream cannot do is an error when the limiter is made.
func TestWhatStreamsRefuse(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
	defer rdb.Close()
	s := redisstream.New(rdb)
	one := core.PerMinute(5)
	chosen := core.LimitBy(func(context.Context) core.Limits { return core.Limits{one} })
	byTenant := core.By(func(context.Context) (string, error) { return "t", nil })
	for name, c := range map[string]struct {
		policy core.Policy
		opts   []core.Option
		want   string
	}{
		"several limits": {core.Limits{one, core.PerHour(50)}, nil, "2 limits"},
		"several keys":   {core.Limits{one, core.PerHour(50).By(byTenant)}, nil, "2 logs"},
		"in flight":      {core.InFlight(3), nil, "requests in flight"},
		"LimitBy":        {chosen, nil, "limits of requests"},
		"WithShadow":     {one, []core.Option{core.WithShadow(core.PerHour(5))}, "core.WithShadow"},
		"WithBan":        {one, []core.Option{core.WithBan(3, time.Minute, time.Minute)}, "core.WithBan"},
	} {
		_, err := core.New(c.policy, core.Global(), append(c.opts, core.WithStore(s))...)
		text := fmt.Sprint(err)
		if !strings.Contains(text, "redisstream(") || !strings.Contains(text, c.want) {
			t.Errorf("%s: %v; want an error of redisstream with %q", name, err, c.want)
		}
	}
}

// What can only be known of a call is an error of that call, and nothing is recorded.
func TestWhatCallsOfStreamsRefuse(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
	defer rdb.Close()
	s := redisstream.New(rdb)
	one := core.PerMinute(5)
	l, err := core.New(one, core.Global(), core.WithStore(s), core.WithCountDenied())
	if err != nil {
		t.Fatal(err)
	}
	_, costly := l.AllowN(t.Context(), "k", 2)
	_, upTo := l.AllowAtMost(t.Context(), "k", 2)
	d, err := l.Allow(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	key := store.NewKey("p", "k")
	take := func(change func(*store.Take)) error {
		take := store.Take{Key: key, Plan: planOf(core.Limits{one}, store.Plan{}), Cost: 1, ID: 1}
		change(&take)
		_, err := coretest.Take(t.Context(), s, take)
		return err
	}
	two := core.Limits{one, core.PerHour(9)}
	for name, err := range map[string]error{
		"AllowN":      costly,
		"AllowAtMost": upTo,
		"Settle":      d.Settle(t.Context(), 2),
		"Merge": s.(store.Merger).Merge(t.Context(), store.MergeRequest{Key: key, Keep: time.Minute,
			Entries: []store.Entry{{ID: 1, Cost: 2}}}),
		"Merge of varied": s.(store.Merger).Merge(t.Context(), store.MergeRequest{Key: key, Keep: time.Minute,
			Varies: true}),
		"two limits": take(func(t *store.Take) { t.Plan = planOf(two, store.Plan{}) }),
		"varied":     take(func(t *store.Take) { t.Plan = planOf(core.Limits{one}, store.Plan{Varies: true}) }),
		"longer":     take(func(t *store.Take) { t.Plan = planOf(core.Limits{one}, store.Plan{Keep: time.Hour}) }),
		"shadow":     take(func(t *store.Take) { t.Plan = planOf(core.Limits{one}, store.Plan{Shadow: 1}) }),
		"slots":      take(func(t *store.Take) { t.Plan = planOf(core.Limits{one}, store.Plan{Slots: true}) }),
		"up to":      take(func(t *store.Take) { t.Mode, t.Cost = store.ModeUpTo, 2 }),
	} {
		var wrong *core.ConfigError
		if !errors.As(err, &wrong) {
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

// An override that a stream cannot decide is refused, and the key's requests go on.
func TestOverridesOfStreams(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
	defer rdb.Close()
	l, err := core.New(core.PerMinute(9), core.Global(), core.WithStore(redisstream.New(rdb)), core.WithOverrides(),
		core.WithTimeout(10*time.Second)) // the machine may be busy
	if err != nil {
		t.Fatal(err)
	}
	unlimited := core.Override{Unlimited: true, Until: time.Now().Add(time.Hour)}
	if err := l.Override(t.Context(), "k", unlimited); err == nil || !strings.Contains(err.Error(), "Unlimited") {
		t.Errorf("unlimited: %v", err)
	}
	for _, window := range []time.Duration{time.Minute, time.Second, time.Hour} {
		limits := core.Limits{{Quota: 9, Window: window}}
		err := l.Override(t.Context(), "k", core.Override{Limits: limits, Until: time.Now().Add(time.Hour)})
		if refused := errors.As(err, new(*core.ConfigError)); refused != (window < time.Minute) {
			t.Errorf("%v: %v", window, err)
		}
		if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed || d.Degraded {
			t.Errorf("%v: %v, %v", window, d, err)
		}
	}
}
