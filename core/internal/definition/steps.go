package definition

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Steps that change logs, or list them, without asking for units.

// settling changes the cost of a take in one log. What the caller believes that it has cost may be wrong, and its age
// may be less than the truth. Of an algorithm that counts, only what was admitted is settled, and twice at most.
func settling(id uint64, key int, l *store.Limit, cost int, wrong int, younger time.Duration) *step {
	text := func() string {
		text := fmt.Sprintf("settle %d in k%d %s to %d", uint32(id), key, describe(l), cost)
		if wrong > 0 {
			text += fmt.Sprintf(", believed to have %d", wrong)
		}
		return text
	}
	return &step{text: text, do: func(x *run) error {
		settler, ok := x.Store.(store.Settler)
		n := slices.IndexFunc(x.made, func(m made) bool { return m.id == id && m.key == key && m.limit.Log == l.Log })
		if n < 0 || !ok {
			return nil
		}
		m := &x.made[n]
		counts := l.Algorithm != store.SlidingLog
		if counts && (!m.admitted || m.settled > 1 || m.units == cost) {
			return nil
		}
		s := store.Settlement{
			Key: x.keys[key], Limit: m.limit, ID: id, Was: m.units, Cost: cost, Period: m.period,
			Age: max(x.Now().Sub(m.at)-younger, 0),
		}
		if wrong > 0 && !counts {
			s.Was = wrong
		}
		if m.limit.Permits {
			s.Cost = 0
		}
		m.settled++
		m.units = s.Cost
		x.forget(id)
		if err := settler.Settle(x.t.Context(), s); err != nil {
			return err
		}
		return x.want.Settle(x.t.Context(), s)
	}}
}

// merging adds entries, and some once more.
func merging(key int, l *store.Limit, entries []store.Entry, twice bool) *step {
	text := func() string {
		var b strings.Builder
		fmt.Fprintf(&b, "merge %d entries into k%d %s, twice %v:", len(entries), key, describe(l), twice)
		for _, e := range entries[:min(len(entries), 8)] {
			fmt.Fprintf(&b, " %d of %d units, %v old;", uint32(e.ID), e.Cost, e.Age)
		}
		return b.String()
	}
	return &step{text: text, do: func(x *run) error {
		merger, ok := x.Store.(store.Merger)
		if !ok {
			return nil
		}
		m := store.MergeRequest{Key: x.keys[key], Limit: l}
		for _, e := range entries {
			x.forget(e.ID)
			for i := range x.made {
				if made := &x.made[i]; made.id == e.ID && made.key == key && made.limit.Log == l.Log {
					e.Age = x.Now().Sub(made.at)
					e.Sent = made.units
					made.units = e.Cost
				}
			}
			m.Entries = append(m.Entries, e)
		}
		if err := x.want.Merge(x.t.Context(), m); err != nil {
			return err
		}
		err := merger.Merge(x.t.Context(), m)
		if twice && err == nil {
			err = merger.Merge(x.t.Context(), m)
		}
		return err
	}}
}

func renewing(key int, l *store.Limit, ids []uint64) *step {
	text := func() string {
		short := make([]uint32, len(ids))
		for i, id := range ids {
			short[i] = uint32(id)
		}
		return fmt.Sprintf("renew %v in k%d %s", short, key, describe(l))
	}
	return &step{text: text, do: func(x *run) error {
		renewer, ok := x.Store.(store.Renewer)
		if !ok {
			return nil
		}
		r := store.Renewal{Key: x.keys[key], Limit: l, IDs: ids}
		if err := x.want.Renew(x.t.Context(), r); err != nil {
			return err
		}
		return renewer.Renew(x.t.Context(), r)
	}}
}

func resetting(key int, limits []*store.Limit, young time.Duration) *step {
	text := func() string {
		var b strings.Builder
		fmt.Fprintf(&b, "reset k%d but for what is younger than %v:", key, young)
		for _, l := range limits {
			b.WriteString(" " + describe(l))
		}
		return b.String()
	}
	return &step{text: text, do: func(x *run) error {
		for i := range x.made { // an algorithm that counts does not know of what was reset
			m := &x.made[i]
			same := func(l *store.Limit) bool { return l.Log == m.limit.Log && l.Algorithm != store.SlidingLog }
			m.admitted = m.admitted && (m.key != key || !slices.ContainsFunc(limits, same))
		}
		if err := x.want.Reset(x.t.Context(), x.keys[key], limits, young); err != nil {
			return err
		}
		return x.Store.Reset(x.t.Context(), x.keys[key], limits, young)
	}}
}

// listing compares a log.
func listing(key int, l *store.Limit) *step {
	text := func() string { return fmt.Sprintf("list k%d %s", key, describe(l)) }
	return &step{text: text, do: func(x *run) error {
		lister, ok := x.Store.(store.Lister)
		if !ok {
			return nil
		}
		got, err := lister.Log(x.t.Context(), x.keys[key], l)
		if err != nil {
			return err
		}
		want, err := x.want.Log(x.t.Context(), x.keys[key], l)
		if err != nil {
			return err
		}
		if !slices.IsSortedFunc(got, func(a, b store.Entry) int { return a.At.Compare(b.At) }) {
			return fmt.Errorf("not oldest first: %v", x.listText(got))
		}
		x.n.answers++
		if g, w := x.listText(got), x.listText(want); g != w {
			return fmt.Errorf("listed %s\nwant   %s", g, w)
		}
		return nil
	}}
}

// listText is a log as text. Entries of one instant are in any order.
func (x *run) listText(all []store.Entry) string {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b store.Entry) int {
		return cmp.Or(cmp.Compare(a.At.UnixMicro(), b.At.UnixMicro()), cmp.Compare(a.Cost, b.Cost))
	})
	var b strings.Builder
	for _, e := range all {
		fmt.Fprintf(&b, "%d %v ago, ", e.Cost, time.Duration(x.want.now-e.At.UnixMicro())*time.Microsecond)
	}
	return b.String()
}
