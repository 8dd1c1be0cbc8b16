package redisclient

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// rooms returns those of a queue whose takes are about one log, with that many units, or 0 for any number.
func rooms(units int) []int {
	if units == 0 {
		return nil
	}
	return []int{units}
}

// argumentOf returns the argument of a take of one log with that cost.
func argumentOf(cost int) string {
	plan := store.NewPlan(store.Plan{Limits: []store.Limit{{Quota: 1, Window: time.Second}}})
	return string(appendCosts([]byte(IDText(1)), []store.Take{{Plan: plan, Cost: cost}}))
}

func queued(ctx context.Context, q *queue, key string, cost int) *take {
	t := &take{ctx: ctx, key: key, keys: []string{key}, argument: argumentOf(cost)}
	q.add(t)
	return t
}

func describe(batch []*take) (all []string) {
	for _, t := range batch {
		all = append(all, fmt.Sprintf("%s:%d", t.key, t.cost(0)))
	}
	return all
}

// Each case lists the takes that wait, as key and cost, and the batches that they leave in.
func TestNextBatch(t *testing.T) {
	type waiting struct {
		key   string
		cost  int
		times int
	}
	for name, c := range map[string]struct {
		room    int
		waiting []waiting
		want    [][]string // only the length of what ends in "...", which is in the first place
	}{
		"in the order of arrival": {
			0, []waiting{{"a", 1, 1}, {"b", 2, 1}, {"a", 3, 1}},
			[][]string{{"a:1", "b:2", "a:3"}},
		},
		"large costs":                  {0, []waiting{{"a", 600, 1}, {"b", 5000, 1}}, [][]string{{"a:600", "b:5000"}}},
		"as many takes as a batch has": {0, []waiting{{"a", 1, batchTakes}}, [][]string{{"...128"}}},
		"one take more": {
			0, []waiting{{"a", 1, batchTakes}, {"b", 1, 1}},
			[][]string{{"...128"}, {"a:1"}},
		},
		"a repeated key within the room": {
			3, []waiting{{"a", 1, 3}, {"b", 1, 1}},
			[][]string{{"a:1", "b:1", "a:1", "a:1"}},
		},
		"a repeated key beyond the room": {
			2, []waiting{{"a", 1, 5}, {"b", 1, 1}, {"c", 2, 1}},
			[][]string{{"a:1", "b:1", "c:2", "a:1"}, {"a:1", "a:1"}, {"a:1"}},
		},
		"in the order of the key's takes": {
			4, []waiting{{"a", 2, 1}, {"a", 3, 1}, {"a", 1, 1}, {"b", 1, 1}},
			[][]string{{"a:2", "b:1"}, {"a:3", "a:1"}},
		},
		"a cost above the room": {2, []waiting{{"a", 9, 2}, {"b", 1, 1}}, [][]string{{"a:9", "b:1"}, {"a:9"}}},
	} {
		q := queue{rooms: rooms(c.room)}
		for _, w := range c.waiting {
			for range w.times {
				queued(t.Context(), &q, w.key, w.cost)
			}
		}
		for i, want := range c.want {
			got := q.nextBatch()
			if len(want) == 1 && want[0] == fmt.Sprintf("...%d", len(got)) {
				continue
			}
			if !slices.Equal(describe(got), want) {
				t.Errorf("%s: batch %d is %v, want %v", name, i+1, describe(got), want)
			}
		}
		if got := q.nextBatch(); got != nil || q.waiting != 0 || len(q.keys) != 0 || len(q.fresh) != 0 {
			t.Errorf("%s: %d takes, %v and %d keys are left", name, q.waiting, describe(got), len(q.keys))
		}
	}
}

// A take whose caller has given up is in no batch, wherever it waits.
func TestNextBatchDropsGivenUpTakes(t *testing.T) {
	for _, room := range []int{0, 5} {
		q := queue{rooms: rooms(room)}
		gone, cancel := context.WithCancel(t.Context())
		var want []*take
		for i := range 3 * batchTakes {
			ctx := t.Context()
			if i%3 > 0 {
				ctx = gone
			}
			if k := queued(ctx, &q, fmt.Sprint("k", i%7), 1); i%3 == 0 {
				want = append(want, k)
			}
			if i == 2*batchTakes { // some are sorted by key by now
				for _, k := range q.nextBatch() {
					want = slices.DeleteFunc(want, func(w *take) bool { return w == k })
				}
			}
		}
		cancel()
		for batch := q.nextBatch(); batch != nil; batch = q.nextBatch() {
			for _, k := range batch {
				if k.gaveUp() {
					t.Errorf("room %d: take %d was sent, whose caller has given up", room, k.arrival)
				}
				want = slices.DeleteFunc(want, func(w *take) bool { return w == k })
			}
		}
		if len(want) > 0 || q.waiting != 0 {
			t.Errorf("room %d: %d takes were not sent, %d wait", room, len(want), q.waiting)
		}
	}
	q := queue{}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	queued(gone, &q, "k", 1)
	if batch := q.nextBatch(); batch != nil || q.waiting != 0 {
		t.Errorf("a batch of %v, %d wait; want none", describe(batch), q.waiting)
	}
}

// Whatever waits, each batch keeps its limits, takes of one key leave in their order, none is lost, and the take that
// has waited longest at the head of a key is never passed over by as many batches as there are keys.
func TestNextBatchOfRandomTakes(t *testing.T) {
	const seed = 5
	r := rand.New(rand.NewPCG(seed, 1))
	for round := range 40 {
		room := r.IntN(3) * r.IntN(40)
		q := queue{rooms: rooms(room)}
		keys := 1 + r.IntN(400)
		last, sent := map[string]uint64{}, 0
		headSince := map[string]int{} // batches, since a key's first take is the next of its key
		for batches := 0; q.waiting > 0 || batches < 15; batches++ {
			if batches < 15 {
				for range r.IntN(300) {
					k := fmt.Sprint(r.IntN(1 + r.IntN(keys)))
					if queued(t.Context(), &q, k, 1+r.IntN(1+r.IntN(1+r.IntN(3000)))); headSince[k] == 0 {
						headSince[k] = batches + 1
					}
				}
			}
			batch := q.nextBatch()
			of := map[string]int{}
			for _, k := range batch {
				if k.arrival <= last[k.key] {
					t.Fatalf("round %d: take %d of key %s after take %d", round, k.arrival, k.key, last[k.key])
				}
				last[k.key] = k.arrival
				of[k.key] += k.cost(0)
				if waited := batches - headSince[k.key]; waited > 2*keys {
					t.Errorf("round %d: key %s of %d keys waited for %d batches", round, k.key, keys, waited)
				}
				headSince[k.key] = batches + 1
				if room > 0 && of[k.key] > room && of[k.key] != k.cost(0) {
					t.Errorf("round %d: %d units of key %s, and there is room for %d", round, of[k.key], k.key, room)
				}
			}
			sent += len(batch)
			empty := len(batch) == 0 && q.waiting > 0
			if len(batch) > batchTakes || empty {
				t.Fatalf("round %d: a batch of %d takes, while %d wait", round, len(batch), q.waiting)
			}
			for k := range headSince {
				if q.keys[k] == nil && last[k] != 0 {
					delete(headSince, k)
				}
			}
		}
		if uint64(sent) != q.arrivals || len(q.keys) != 0 {
			t.Errorf("round %d: %d of %d takes were sent", round, sent, q.arrivals)
		}
	}
}

// A client that floods one key delays no other key by more than a batch, and a batch does not look at its backlog.
func TestFloodOfOneKeyDelaysNoOther(t *testing.T) {
	for name, c := range map[string]struct{ room, cost int }{
		"charge": {0, 1}, "charge, dear": {0, 900}, "charge, the most": {0, 10_000},
		"count denied, quota 1": {1, 1}, "count denied, quota 100": {100, 1}, "count denied, dear": {1000, 900},
	} {
		q := queue{rooms: rooms(c.room)}
		const backlog, bystanders = 50_000, 20
		for range backlog {
			queued(t.Context(), &q, "attacker", c.cost)
		}
		q.nextBatch()
		for i := range bystanders {
			queued(t.Context(), &q, fmt.Sprint("bystander ", i), 1)
		}
		found := 0
		for range 2 {
			for _, k := range q.nextBatch() {
				if k.key != "attacker" {
					found++
				}
			}
		}
		if found != bystanders {
			t.Errorf("%s: %d of %d bystanders are in the next two batches", name, found, bystanders)
		}
		if len(q.fresh) != 0 || q.waiting < backlog-3*batchTakes {
			t.Errorf("%s: %d takes are not sorted by key", name, len(q.fresh))
		}
		// All batches together look at each waiting take once, not once for each batch.
		looks := 0
		for t := q.keys["attacker"].first; t != nil; t = t.next {
			t.ctx = &looked{t.ctx, &looks} //nolint:fatcontext // each take has a context of its own
		}
		n := q.waiting
		for batch := q.nextBatch(); batch != nil; {
			batch = q.nextBatch()
		}
		if looks > 3*n {
			t.Errorf("%s: batches looked %d times at %d takes", name, looks, n)
		}
	}
}

// looked counts how often a context was asked whether it has ended.
type looked struct {
	context.Context
	n *int
}

func (c *looked) Err() error {
	*c.n++
	return c.Context.Err()
}

// Takes about several logs count as so many, and a log may be that of takes with other keys as well.
func TestNextBatchOfSeveralLogs(t *testing.T) {
	add := func(q *queue, cost int, keys ...string) {
		q.add(&take{ctx: t.Context(), key: strings.Join(keys, " "), keys: keys, argument: argumentOf(cost)})
	}
	for _, rooms := range [][]int{nil, {1000, 1000}} {
		q := queue{rooms: rooms}
		for i := range 2 * batchTakes {
			add(&q, 1, fmt.Sprint("user ", i), "all")
		}
		for range 4 {
			if n := len(q.nextBatch()); n != batchTakes/2 {
				t.Errorf("rooms %v: a batch of %d takes about two logs, want %d", rooms, n, batchTakes/2)
			}
		}
		if q.nextBatch() != nil || q.waiting != 0 {
			t.Errorf("rooms %v: %d takes are left", rooms, q.waiting)
		}
	}
	q := queue{rooms: []int{3, 5}}
	for _, user := range []string{"a", "b", "a", "c", "a"} {
		add(&q, 2, user, "all")
	}
	add(&q, 9, "d", "all")
	add(&q, 1, "e", "other")
	for i, want := range [][]string{
		{"a all:2", "b all:2", "e other:1"}, {"c all:2", "a all:2"}, {"d all:9"}, {"a all:2"},
	} {
		if got := describe(q.nextBatch()); !slices.Equal(got, want) {
			t.Errorf("batch %d is %v, want %v", i+1, got, want)
		}
	}
	if q.nextBatch() != nil || q.waiting != 0 {
		t.Errorf("%d takes are left", q.waiting)
	}
}
