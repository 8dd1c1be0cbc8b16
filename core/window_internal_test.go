package core

import (
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

// The ring against a plain slice, through growing, shrinking and wrapping around.
func TestRecordAgainstSlice(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	rec := &record{gone: 1<<64 - 5000, total: 1<<64 - 5000} // so that the running total wraps around
	var list plainLog
	now := int64(0)
	for step := range 200_000 {
		switch r.IntN(16) {
		case 2: // a cost is corrected, or taken back
			if len(list) > 0 {
				e, cost := list[r.IntN(len(list))], r.IntN(6)
				if e.id != 0 {
					rec.settle(e.id, cost)
				}
				list.settle(e.id, cost)
			}
		case 3: // one comes from another log
			at, id, cost := now-r.Int64N(500), uint64(step)+1, 1+r.IntN(5)
			if len(list) > 0 && r.IntN(2) == 0 {
				id = max(1, list[r.IntN(len(list))].id)
			}
			rec.insert(at, id, cost)
			list.insert(at, id, cost)
		case 4: // only so many are kept
			if step%20 == 0 {
				units := 1 + r.IntN(2000)
				rec.trim(units)
				list.trim(units)
			}
		case 0:
			cut := now - r.Int64N(2000)
			rec.drop(cut)
			for len(list) > 0 && list[0].at <= cut {
				list = list[1:]
			}
		case 1:
			if step%50 == 0 {
				rec.fit()
			}
		default:
			now += r.Int64N(4)
			cost := 1 + r.IntN(5)
			rec.add(now, uint64(step)+1, cost)
			list = append(list, entry{now, uint64(step) + 1, uint64(cost)})
		}
		if int(rec.count) != len(list) {
			t.Fatalf("seed %#x, step %d: %d entries, want %d", seed, step, rec.count, len(list))
		}
		if len(list) == 0 {
			if rec.total != rec.gone {
				t.Fatalf("seed %#x, step %d: %d units in no entry", seed, step, rec.total-rec.gone)
			}
			continue
		}
		if rec.first != list[0].at || rec.total != rec.at(rec.count-1).total {
			t.Fatalf("seed %#x, step %d: the ends are %d and %d", seed, step, rec.first, rec.total)
		}
		first := uint32(r.IntN(len(list)))
		if at := list[first].at; rec.at(first).at != at || rec.at(first).id != list[first].id {
			t.Fatalf("seed %#x, step %d: entry %d differs", seed, step, first)
		}
		cut := now - r.Int64N(1000)
		want := uint32(0)
		for want < rec.count && list[want].at <= cut {
			want++
		}
		if got := rec.since(cut); got != want {
			t.Fatalf("seed %#x, step %d: since(%d) = %d, want %d", seed, step, cut, got, want)
		}
		units := uint64(0)
		for _, e := range list[first:] {
			units += e.total
		}
		if got := rec.before(rec.count) - rec.before(first); got != units {
			t.Fatalf("seed %#x, step %d: %d units from entry %d on, want %d", seed, step, got, first, units)
		}
		n, left := 1+r.Uint64N(units), int64(0)
		sum := uint64(0)
		for _, e := range list[first:] {
			if sum += e.total; sum >= n {
				left = e.at
				break
			}
		}
		if got := rec.leaving(first, n); got != left {
			t.Fatalf("seed %#x, step %d: unit %d from entry %d on leaves at %d, want %d", seed, step, n, first, got, left)
		}
	}
}

func TestRingShrinks(t *testing.T) {
	rec := new(record)
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
				for _, p := range s.shards[i].logs.places {
					if p.log != nil {
						n += len(p.log.ring)
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
