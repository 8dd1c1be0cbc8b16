package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
)

// readMarkOnce is how versions read marks that knew no weights.
const readMarkOnce = `mark = head[2] == '0' and head[1] or nil
near, kept = mark and mark:sub(1, 5) == 'near:', mark and mark:sub(6) + 0
`

// Where a log has weights, a version that knows none admits nothing and changes nothing.
func TestOlderVersionsRefuseWeights(t *testing.T) {
	rdb := start(t)
	c := newClock(rdb)
	fixed := planOf(core.Limits{core.PerHour(core.MaxQuota)}, store.Plan{})
	for name, begin := range map[string]func(s store.Full, key store.Key){
		"take": func(s store.Full, key store.Key) { mustTake(t, s, store.Take{Key: key, Plan: fixed, Cost: 5, ID: 1}) },
		"settlement": func(s store.Full, key store.Key) {
			mustTake(t, s, store.Take{Key: key, Plan: fixed, Cost: 1, ID: 1})
			if err := s.Settle(t.Context(), store.Settlement{Key: key, ID: 1, Cost: 5}); err != nil {
				t.Fatal(err)
			}
		},
		"long-log": func(s store.Full, key store.Key) {
			fill(t, s, key, 2100)
			mustTake(t, s, store.Take{Key: key, Plan: fixed, Cost: 5, ID: 1 << 40})
		},
	} {
		t.Run(name, func(t *testing.T) {
			key, other := store.NewKey(name, "k"), store.NewKey(name, "other")
			begin(full(newStore(c)), key)
			past := newVariant(c, map[string]string{"mark_read": readMarkOnce})
			s := full(redisstore.Single(newStore(past)))
			stored := func() string {
				var all []string
				for _, k := range []store.Key{key, other} {
					k := "sash:" + string(k.AppendTo(nil))
					all = append(all, rdb.Dump(t.Context(), k).Val(), fmt.Sprint(rdb.ExpireTime(t.Context(), k).Val()))
				}
				return strings.Join(all, " ")
			}
			before := stored()
			if len(before) < 50 {
				t.Fatalf("no log is stored: %q", before)
			}
			for what, ask := range asksOf(t, s, key, other) {
				if ask() == nil {
					t.Errorf("%s: no error", what)
				}
				if stored() != before {
					t.Fatalf("%s: the log has changed", what)
				}
			}
		})
	}
}

func mustTake(t *testing.T, s core.Store, take store.Take) {
	t.Helper()
	if a, err := s.Take(t.Context(), take); err != nil || !a.Allowed {
		t.Fatalf("%+v, %v", a, err)
	}
}

// asksOf returns everything that a store can be asked about a log that it has to understand.
func asksOf(t *testing.T, s store.Full, key, other store.Key) map[string]func() error {
	all := map[string]func() error{
		"log": func() error { _, err := s.Log(t.Context(), key, time.Hour); return err },
	}
	id := uint64(1 << 50)
	for n, limits := range []core.Limits{
		{core.PerHour(core.MaxQuota)}, {core.PerMinute(100), core.PerHour(core.MaxQuota)},
		{{Quota: 5, Window: time.Millisecond}},
	} {
		plan := planOf(limits, store.Plan{})
		for _, mode := range []store.Mode{store.ModeCharge, store.ModePeek, store.ModeRecord, store.ModeChargeDenied} {
			id++
			take := store.Take{Key: key, Plan: plan, Cost: 1, ID: id, Mode: mode}
			all[fmt.Sprint(mode, ", limits ", n)] = func() error {
				_, err := s.Take(t.Context(), take)
				return err
			}
			all[fmt.Sprint(mode, ", two logs, limits ", n)] = func() error {
				second := take
				second.Key = other
				return s.TakeAll(t.Context(), []store.Take{second, take}, make([]store.Answer, 2))
			}
		}
	}
	for _, varies := range []bool{false, true} {
		m := store.MergeRequest{Key: key, Keep: time.Hour, Varies: varies}
		m.Entries = []store.Entry{{ID: 1 << 60, Cost: 1}}
		all[fmt.Sprint("merge, varies ", varies)] = func() error { return s.Merge(t.Context(), m) }
	}
	return all
}
