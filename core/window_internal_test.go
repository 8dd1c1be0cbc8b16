package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// plainLog is what a record should be; total is the entry's own cost here.
type plainLog []entry

func (l *plainLog) settle(id uint64, cost int) {
	i := slices.IndexFunc(*l, func(e entry) bool { return e.id == id })
	if id == 0 {
		return // what is left of an entry is nobody's
	}
	if (*l)[i].total = uint64(cost); cost == 0 {
		*l = slices.Delete(*l, i, i+1)
	}
}

func (l *plainLog) insert(at int64, id uint64, cost int) {
	if slices.ContainsFunc(*l, func(e entry) bool { return e.id == id }) {
		return
	}
	i := len(*l)
	for i > 0 && (*l)[i-1].at > at {
		i--
	}
	*l = slices.Insert(*l, i, entry{at, id, uint64(cost)})
}

func (l *plainLog) trim(units int) {
	held := 0
	for i := len(*l) - 1; i >= 0; i-- {
		if held += int((*l)[i].total); held < units {
			continue
		}
		if held > units {
			(*l)[i].total -= uint64(held - units)
			(*l)[i].id = 0
		}
		*l = (*l)[i:]
		return
	}
}

// The record against a plain slice, through growing, shrinking, wrapping around, and with a ledger or without.
func TestRecordAgainstSlice(t *testing.T) {
	const phase = 2000
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	rec := &record{next: 1}
	var list plainLog
	now, plain := int64(0), [2]int{}
	for step := range 100 * phase {
		alike := step/phase%2 == 0 // takes of one unit with ids of the record's own, which mostly are not corrected
		if step%phase == 0 {
			rec.drop(now)
			list = nil
		}
		had := rec.ledger
		switch op := r.IntN(16); {
		case op == 2 && (!alike || step%phase > phase/2 && r.IntN(100) == 0): // a cost is corrected, or taken back
			if len(list) > 0 {
				e, cost := list[r.IntN(len(list))], r.IntN(6)
				if e.id != 0 {
					rec.settle(e.id, cost)
				}
				list.settle(e.id, cost)
				rec.settle(1<<60, 0)
			}
		case op == 3 && !alike: // one comes from another log
			at, id, cost := now-r.Int64N(500), 1<<32+uint64(step), 1+r.IntN(5)
			if len(list) > 0 && r.IntN(2) == 0 {
				id = max(1, list[r.IntN(len(list))].id)
			}
			rec.insert(at, id, cost)
			list.insert(at, id, cost)
		case op == 4: // only so many are kept
			if step%20 == 0 {
				units := 1 + r.IntN(1000)
				rec.trim(units)
				list.trim(units)
			}
		case op == 0:
			cut := now - r.Int64N([]int64{2000, 200, 20}[step/phase%3])
			rec.drop(cut)
			for len(list) > 0 && list[0].at <= cut {
				list = list[1:]
			}
		case op == 1:
			if step%50 == 0 {
				rec.fit()
			}
		default:
			now += r.Int64N(4)
			id, cost := uint64(0), 1
			if !alike {
				cost = 1 + r.IntN(5)
				if r.IntN(2) == 0 {
					id = 1<<32 + uint64(step)
				}
			}
			got := rec.add(now, id, cost)
			if id != 0 && got != id || got == 0 {
				t.Fatalf("seed %#x, step %d: id %d became %d", seed, step, id, got)
			}
			list = append(list, entry{now, got, uint64(cost)})
		}
		if had == nil && rec.ledger != nil {
			wrapTotals(rec)
		}
		compareRecord(t, rec, list, r, fmt.Sprintf("seed %#x, step %d", seed, step))
		if rec.ledger == nil && rec.count > 0 {
			plain[min(1, rec.old())]++
		}
	}
	if min(plain[0], plain[1]) < 2*phase {
		t.Errorf("%d steps without a ledger, some of them aged %d: this test has tested too little", plain[0]+plain[1], plain[1])
	}
}

// wrapTotals has the running total wrap around soon.
func wrapTotals(rec *record) {
	for i := range rec.count {
		rec.entry(i).total -= 1000
	}
	rec.ledger.gone -= 1000
	rec.ledger.total -= 1000
}

func compareRecord(t *testing.T, rec *record, list plainLog, r *rand.Rand, where string) {
	t.Helper()
	if int(rec.count) != len(list) {
		t.Fatalf("%s: %d entries, want %d", where, rec.count, len(list))
	}
	if len(list) == 0 {
		if rec.units(0) != 0 || rec.ledger != nil {
			t.Fatalf("%s: %d units in no entry", where, rec.units(0))
		}
		return
	}
	if rec.first != list[0].at {
		t.Fatalf("%s: the first is of %d", where, rec.first)
	}
	first := uint32(r.IntN(len(list)))
	if e := list[first]; rec.at(first) != e.at || rec.id(first) != e.id || rec.cost(first) != int(e.total) {
		t.Fatalf("%s: entry %d is %d, %d, %d; want %v", where, first, rec.at(first), rec.id(first), rec.cost(first), e)
	}
	youngest := list[len(list)-1].at
	cut := youngest - r.Int64N(1000)
	want := uint32(0)
	for want < rec.count && list[want].at <= cut {
		want++
	}
	if got := rec.since(cut); got != want {
		t.Fatalf("%s: since(%d) = %d, want %d", where, cut, got, want)
	}
	units := 0
	for _, e := range list[first:] {
		units += int(e.total)
	}
	if got := rec.units(first); got != units {
		t.Fatalf("%s: %d units from entry %d on, want %d", where, got, first, units)
	}
	n, left, sum := 1+r.IntN(units), int64(0), 0
	for _, e := range list[first:] {
		if sum += int(e.total); sum >= n {
			left = e.at
			break
		}
	}
	if got := rec.leaving(first, n); got != left {
		t.Fatalf("%s: unit %d from entry %d on leaves at %d, want %d", where, n, first, got, left)
	}
}

func TestRingShrinks(t *testing.T) {
	rec := &record{next: 1}
	for i := range int64(10_000) {
		rec.add(i, 0, 1)
	}
	if len(rec.ring) != 16384 {
		t.Fatalf("a ring of %d", len(rec.ring))
	}
	rec.drop(9_990)
	for range 20 {
		rec.fit()
	}
	if len(rec.ring) > 64 || rec.count != 9 {
		t.Errorf("a ring of %d for %d entries", len(rec.ring), rec.count)
	}
}

// A burst's memory goes back while the key lives on.
func TestStoreGivesMemoryBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewMemoryStore()
		l, err := New(PerMinute(10_000), Global(), WithStore(s))
		if err != nil {
			t.Fatal(err)
		}
		size := func() (n int) {
			for i := range s.shards {
				places := s.shards[i].logs.all()
				for i := range places {
					if log := places[i].log.Load(); log != nil {
						n += len(log.ring)
					}
				}
			}
			return n
		}
		for range 10_000 {
			l.Allow(t.Context(), "k")
		}
		if n := size(); n != 16384 {
			t.Fatalf("a ring of %d after the burst", n)
		}
		for range 20 * 10 {
			time.Sleep(6 * time.Second)
			l.Allow(t.Context(), "k")
		}
		if n := size(); n > 64 {
			t.Errorf("a ring of %d for 10 entries a window", n)
		}
	})
}
