package slide

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/internal/testlen"
)

// plainLog is a model of Log. The total of an entry is its own cost here.
type plainLog []entry

func (l *plainLog) settle(id uint64, cost int) {
	i := slices.IndexFunc(*l, func(e entry) bool { return e.id == id })
	if id == 0 {
		return // a trimmed entry cannot be settled
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

func (l *plainLog) renew(now int64, ids []uint64) {
	*l = slices.DeleteFunc(*l, func(e entry) bool { return e.id != 0 && slices.Contains(ids, e.id) })
	for _, id := range ids {
		*l = append(*l, entry{now, id, 1})
	}
}

// someIDs returns the ids of about a quarter of the entries.
func (l *plainLog) someIDs(r *rand.Rand) (ids []uint64) {
	for _, e := range *l {
		if r.IntN(4) == 0 {
			ids = append(ids, e.id)
		}
	}
	return ids
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

// A Log is compared with a slice while it grows, shrinks and wraps around, with a ledger and without.
func TestLogAgainstSlice(t *testing.T) { //nolint:gocyclo // a case for each operation
	testlen.SkipRace(t)
	const phase = 2000
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	log := new(Log)
	var list plainLog
	now, plain := int64(0), [2]int{}
	for step := range 100 * phase {
		alike := step/phase%2 == 0 // entries of one unit with assigned IDs, most of which are not corrected
		if step%phase == 0 {
			log.Drop(now)
			list = nil
		}
		had := log.ledger
		switch op := r.IntN(16); {
		case op == 2 && (!alike || step%phase > phase/2 && r.IntN(100) == 0): // a cost changes, or the entry is removed
			if len(list) > 0 {
				e, cost := list[r.IntN(len(list))], r.IntN(6)
				if e.id != 0 {
					log.Settle(e.id, cost)
				}
				list.settle(e.id, cost)
				log.Settle(1<<60, 0)
			}
		case op == 3 && !alike: // an entry of another log is inserted
			at, id, cost := now-r.Int64N(500), 1<<32+uint64(step), 1+r.IntN(5)
			if len(list) > 0 && r.IntN(2) == 0 {
				id = max(1, list[r.IntN(len(list))].id)
			}
			log.Insert(at, id, cost)
			list.insert(at, id, cost)
		case op == 5 && (!alike || step%phase > phase/2 && r.IntN(100) == 0): // entries are renewed
			ids := slices.DeleteFunc(list.someIDs(r), func(id uint64) bool { return id == 0 })
			ids = append(ids, 1<<60+uint64(step))
			slices.Sort(ids)
			log.Renew(now, ids)
			list.renew(now, ids)
		case op == 4: // the oldest units are removed
			if step%20 == 0 {
				units := 1 + r.IntN(1000)
				log.Trim(units)
				list.trim(units)
			}
		case op == 0:
			cut := now - r.Int64N([]int64{2000, 200, 20}[step/phase%3])
			log.Drop(cut)
			for len(list) > 0 && list[0].at <= cut {
				list = list[1:]
			}
		case op == 1:
			if step%50 == 0 {
				log.Shrink()
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
			got := log.Add(now, id, cost)
			if id != 0 && got != id || got == 0 {
				t.Fatalf("seed %#x, step %d: ID %d became %d", seed, step, id, got)
			}
			list = append(list, entry{now, got, uint64(cost)})
		}
		if had == nil && log.ledger != nil {
			wrapTotals(log)
		}
		where := fmt.Sprintf("seed %#x, step %d", seed, step)
		compareLog(t, log, list, r, where)
		compareWindow(t, log, list, r, where)
		if log.ledger == nil && log.count > 0 {
			plain[min(1, log.ringLen())]++
		}
	}
	if min(plain[0], plain[1]) < 2*phase {
		t.Errorf("%d steps without a ledger, %d of them with a ring: the test covers too little",
			plain[0]+plain[1], plain[1])
	}
}

// wrapTotals makes the running total wrap around soon.
func wrapTotals(log *Log) {
	for i := range log.Len() {
		log.entry(i).total -= 1000
	}
	log.ledger.base -= 1000
	log.ledger.total -= 1000
}

func compareLog(t *testing.T, log *Log, list plainLog, r *rand.Rand, where string) {
	t.Helper()
	if int(log.count) != len(list) {
		t.Fatalf("%s: %d entries, want %d", where, log.count, len(list))
	}
	if len(list) == 0 {
		if log.Units(0) != 0 || log.ledger != nil {
			t.Fatalf("%s: %d units in no entry", where, log.Units(0))
		}
		return
	}
	if log.oldest != list[0].at {
		t.Fatalf("%s: the oldest instant is %d", where, log.oldest)
	}
	first := r.IntN(len(list))
	if e := list[first]; log.At(first) != e.at || log.ID(first) != e.id || log.Cost(first) != int(e.total) {
		t.Fatalf("%s: entry %d is %d, %d, %d; want %v", where, first, log.At(first), log.ID(first), log.Cost(first), e)
	}
	newest := list[len(list)-1].at
	cut := newest - r.Int64N(1000)
	want := 0
	for want < log.Len() && list[want].at <= cut {
		want++
	}
	if got := log.Since(cut); got != want {
		t.Fatalf("%s: Since(%d) = %d, want %d", where, cut, got, want)
	}
	units := 0
	for _, e := range list[first:] {
		units += int(e.total)
	}
	if got := log.Units(first); got != units {
		t.Fatalf("%s: %d units from entry %d on, want %d", where, got, first, units)
	}
	n, instant, sum := 1+r.IntN(units), int64(0), 0
	for _, e := range list[first:] {
		if sum += int(e.total); sum >= n {
			instant = e.at
			break
		}
	}
	if got := log.unitAt(first, n); got != instant {
		t.Fatalf("%s: unit %d from entry %d on is of %d, want %d", where, n, first, got, instant)
	}
}

// compareWindow compares View and Wait with what they are defined to be, for a random window, quota and cost.
func compareWindow(t *testing.T, log *Log, list plainLog, r *rand.Rand, where string) {
	t.Helper()
	now, window := r.Int64N(10), 1+r.Int64N(1000)
	if len(list) > 0 {
		now += list[len(list)-1].at
	}
	used, reset := 0, int64(0)
	for _, e := range slices.Backward(list) {
		if e.at > now-window {
			used, reset = used+int(e.total), e.at+window-now
		}
	}
	if gotUsed, gotReset := log.View(now, time.Duration(window)); gotUsed != used || int64(gotReset) != reset {
		t.Fatalf("%s: View(%d, %d) = %d, %d; want %d, %d", where, now, window, gotUsed, gotReset, used, reset)
	}
	quota := 1 + r.IntN(max(1, used+10))
	cost := 1 + r.IntN(quota)
	wait, left := int64(0), used
	for _, e := range list {
		if e.at > now-window && left+cost > quota {
			wait, left = e.at+window-now, left-int(e.total)
		}
	}
	if got := log.Wait(now, time.Duration(window), quota, cost); int64(got) != wait {
		t.Fatalf("%s: Wait(%d, %d, %d, %d) = %d, want %d", where, now, window, quota, cost, got, wait)
	}
}

func TestRingShrinks(t *testing.T) {
	log := new(Log)
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

// IDs go on after the one that New is given, also when the log was empty meanwhile.
func TestAssignedIDs(t *testing.T) {
	log := New(7)
	log.Add(1, 0, 1)
	log.Add(2, 0, 2)
	log.Drop(2)
	if id := log.Add(3, 0, 1); id != 10 || log.ID(0) != 10 || log.LastID() != 10 {
		t.Errorf("ID %d, of entry 0 %d, last %d; want 10", id, log.ID(0), log.LastID())
	}
}

// A Log adds an entry, and answers, without an allocation while its tail has room.
func TestAllocs(t *testing.T) {
	n := testing.AllocsPerRun(100, func() {
		var log Log
		for at := range int64(tailSize) {
			log.Drop(at - 3)
			log.View(at, 3)
			log.Wait(at, 3, 2, 1)
			log.Add(at, 0, 1)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
