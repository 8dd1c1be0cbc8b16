package slide

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sashlimit/sash/core/internal/testlen"
)

// plainLog is a model of Log.
type plainLog []Entry

func (l *plainLog) settle(id uint64, cost int) {
	i := slices.IndexFunc(*l, func(e Entry) bool { return e.ID == id })
	if i < 0 || id == 0 {
		return
	}
	if (*l)[i].Cost = cost; cost == 0 {
		*l = slices.Delete(*l, i, i+1)
	}
}

func (l *plainLog) merge(entries []Entry) {
	for _, e := range entries {
		if slices.ContainsFunc(*l, func(of Entry) bool { return of.ID == e.ID }) {
			l.settle(e.ID, e.Cost)
		} else if e.Cost > 0 {
			i := len(*l)
			for i > 0 && (*l)[i-1].At > e.At {
				i--
			}
			*l = slices.Insert(*l, i, e)
		}
	}
}

func (l *plainLog) renew(now int64, ids []uint64) {
	*l = slices.DeleteFunc(*l, func(e Entry) bool { return slices.Contains(ids, e.ID) })
	for _, id := range ids {
		*l = append(*l, Entry{now, id, 1})
	}
}

func (l *plainLog) units() (units int) {
	for _, e := range *l {
		units += e.Cost
	}
	return units
}

func (l *plainLog) trim(units int) {
	for len(*l) > 0 && l.units()-(*l)[0].Cost >= units {
		*l = (*l)[1:]
	}
}

// someID returns the ID of an entry, or now and then one that no entry has.
func (l *plainLog) someID(r *rand.Rand) uint64 {
	if len(*l) == 0 || r.IntN(10) == 0 {
		return 1 << 60
	}
	return (*l)[r.IntN(len(*l))].ID
}

// A Log is compared with a slice while it grows, shrinks and wraps around: with a ledger and without, and with one that
// is large.
func TestLogAgainstSlice(t *testing.T) {
	testlen.SkipRace(t)
	const phase = 2000
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	log := New(0)
	var list plainLog
	now, plain, indexed, large := int64(0), [2]int{}, 0, 0
	for step := range testlen.Of(30, 100) * phase {
		alike := step/phase%2 == 0 // entries of one unit with assigned IDs, most of which are not settled
		if step%phase == 0 {
			log.Drop(now)
			list = nil
		}
		where := fmt.Sprintf("seed %#x, step %d", seed, step)
		rare := !alike || step%phase > phase/2 && r.IntN(100) == 0
		switch op := r.IntN(16); {
		case op < 2 && rare: // a cost changes, or the entry is removed
			id, cost := list.someID(r), max(0, r.IntN(8)-2)
			log.Settle(id, cost)
			list.settle(id, cost)
		case op == 2 && !alike && step%20 == 0: // entries of another log are merged
			var entries []Entry
			for n := range r.IntN(5) {
				e := Entry{now - r.Int64N(500), 1<<32 + uint64(8*step+n), r.IntN(5)}
				if r.IntN(2) == 0 {
					e.ID = list.someID(r)
				}
				entries = append(entries, e)
			}
			log.Merge(entries)
			list.merge(entries)
		case op == 3 && rare: // entries are renewed
			ids := []uint64{1<<60 + uint64(step)}
			for range r.IntN(4) {
				ids = append(ids, list.someID(r))
			}
			slices.Sort(ids)
			ids = slices.Compact(ids)
			log.Renew(now, ids)
			list.renew(now, ids)
		case op == 4: // the oldest entries are removed
			if step%100 == 0 {
				units := 1 + r.IntN(5000)
				log.Trim(units)
				list.trim(units)
			}
		case op == 5:
			cut := now - r.Int64N([]int64{8000, 2000, 200, 20}[step/phase/2%4])
			log.Drop(cut)
			for len(list) > 0 && list[0].At <= cut {
				list = list[1:]
			}
		case op == 6:
			if step%50 == 0 {
				log.Shrink()
			}
		default:
			now += r.Int64N(4)
			id, cost := uint64(0), 1
			if !alike {
				cost = 1 + r.IntN(5)
				if r.IntN(2) == 0 {
					id = 1<<32 + uint64(8*step)
				}
			}
			got := log.Add(now, id, cost)
			if id != 0 && got != id || got == 0 {
				t.Fatalf("%s: ID %d became %d", where, id, got)
			}
			list = append(list, Entry{now, got, cost})
		}
		compareLog(t, &log, list, r, where)
		switch {
		case log.ledger == nil && log.count > 0:
			plain[min(1, log.ringLen())]++
		case log.ledger != nil && log.ledger.isLarge():
			if large++; log.ledger.search != nil && log.ledger.search.index != nil {
				indexed++
			}
		}
	}
	if min(plain[0], plain[1], indexed, large) < phase/10 {
		t.Errorf("%d steps without a ledger, %d of them with a ring, %d with a large one, %d with an index: too few",
			plain[0]+plain[1], plain[1], large, indexed)
	}
}

func compareLog(t *testing.T, log *Log, list plainLog, r *rand.Rand, where string) {
	t.Helper()
	units := list.units()
	if log.Units() != units {
		t.Fatalf("%s: %d units, want %d", where, log.Units(), units)
	}
	if len(list) == 0 {
		if log.ledger != nil || log.count > 0 || log.Oldest() != never {
			t.Fatalf("%s: %d entries, the oldest of %d, want none", where, log.count, log.Oldest())
		}
		return
	}
	if log.Oldest() != list[0].At || log.Newest() != list[len(list)-1].At {
		t.Fatalf("%s: instants from %d to %d", where, log.Oldest(), log.Newest())
	}
	// The first to ask a large ledger makes its tree, and those that follow find it up to date.
	if g := log.ledger; g != nil && (g.search == nil || g.search.tree == nil) && r.IntN(20) > 0 {
		return
	}
	n := 1 + r.IntN(units)
	sum, i := 0, -1
	for sum < n {
		i++
		sum += list[i].Cost
	}
	if got := log.UnitAt(n); got != list[i].At {
		t.Fatalf("%s: unit %d is of %d, want %d", where, n, got, list[i].At)
	}
	if r.IntN(50) == 0 {
		if got := slices.Collect(log.Entries()); !slices.Equal(got, list) {
			t.Fatalf("%s: entries\n%v, want\n%v", where, got, list)
		}
	}
}

// A large ledger finds the instant of each unit, wherever its ring begins.
func TestUnitAtOfManyEntries(t *testing.T) {
	testlen.SkipRace(t)
	const size = 1 << 14
	log := New(0)
	r := rand.New(rand.NewPCG(1, 2))
	total := make([]int, 1, 2*size)
	for at := range int64(size + size/3) {
		cost := 1 + r.IntN(3)
		log.Add(at, 0, cost)
		total = append(total, total[at]+cost)
		log.Drop(at - (size - 100))
	}
	if len(log.ledger.ring) != size || log.head == 0 {
		t.Fatalf("a ring of %d that begins at %d", len(log.ledger.ring), log.head)
	}
	first := int(log.Oldest())
	for i := first; i < len(total)-1; i++ {
		for _, unit := range []int{total[i] + 1, total[i+1]} {
			if got := log.UnitAt(unit - total[first]); got != int64(i) {
				t.Fatalf("unit %d of entry %d is at %d", unit-total[i], i, got)
			}
		}
	}
}

// Nothing moves when an entry of a large log is settled: the same number of places is written, wherever it is.
func TestSettlementsMoveNothing(t *testing.T) {
	log := New(0)
	const n = 100_000
	for at := range int64(n) {
		log.Add(at, 0, 2)
	}
	ring := slices.Clone(log.ledger.ring)
	for _, id := range []uint64{2, n / 3, n / 2, n - 1} {
		log.Settle(id, 1)
		log.Settle(id, 0)
	}
	changed := 0
	for i := range ring {
		if log.ledger.ring[i] != ring[i] {
			changed++
		}
	}
	if changed != 4 || log.Units() != 2*(n-4) || log.ledger.search != nil {
		t.Errorf("%d entries changed, %d units, want 4 and %d", changed, log.Units(), 2*(n-4))
	}
}

func TestRingShrinks(t *testing.T) {
	log := New(0)
	for i := range int64(10_000) {
		log.Add(i, 0, 1)
	}
	if len(log.ring) != 16384 {
		t.Fatalf("a ring of %d", len(log.ring))
	}
	log.Drop(9_990)
	for range 20 {
		log.Shrink()
	}
	if len(log.ring) > 64 || log.count != 9 {
		t.Errorf("a ring of %d for %d entries", len(log.ring), log.count)
	}
}

// Entries of one unit whose oldest are taken back, as those of requests in flight mostly are, need no ledger.
func TestOldestTakenBack(t *testing.T) {
	log := New(0)
	for at := range int64(100) {
		id := log.Add(at, 0, 1)
		if at >= 10 {
			log.Settle(id-10, 0)
		}
	}
	if log.ledger != nil || log.Units() != 10 || log.Oldest() != 90 {
		t.Errorf("ledger %v, %d units, the oldest of %d", log.ledger, log.Units(), log.Oldest())
	}
}

// IDs go on after the one that New is given, also when the log was empty meanwhile.
func TestAssignedIDs(t *testing.T) {
	log := New(7)
	log.Add(1, 0, 1)
	log.Add(2, 0, 2)
	log.Drop(2)
	if id := log.Add(3, 0, 1); id != 10 || log.LastID() != 10 {
		t.Errorf("ID %d, last %d; want 10", id, log.LastID())
	}
}

// A Log adds an entry, and answers, without an allocation while its tail has room.
func TestAllocs(t *testing.T) {
	n := testing.AllocsPerRun(100, func() {
		log := New(0)
		for at := range int64(tailSize) {
			log.Drop(at - 3)
			log.Add(at, 0, 1)
			log.UnitAt(1)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
