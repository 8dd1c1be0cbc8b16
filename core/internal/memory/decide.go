package memory

import (
	"math"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// takeOne decides about a take of the entry's key. It does nothing, and returns false, if the log is not there.
func (e *entry) takeOne(t *store.Take, a *store.Answer, now instant) bool {
	l := e.find(t.Limit)
	if l != nil {
		units, mode := t.Limit.Counted(t.Cost, t.Mode)
		t.ID = l.decide(t.Limit, now, e.now, t.ID, units, 0, mode, a)
	}
	return l != nil
}

// take is takeOne for several takes.
func (e *entry) take(takes []store.Take, answers []store.Answer, now instant) bool {
	admitted := true
	for i := range takes {
		t := &takes[i]
		l := e.find(t.Limit)
		if l == nil {
			return false
		}
		units, _ := t.Limit.Counted(t.Cost, t.Mode)
		answers[i].Allowed = t.Limit.HasRoom(l.used(t.Limit, now, e.now), units)
		admitted = admitted && answers[i].Allowed
	}
	for i := range takes {
		t, a := &takes[i], &answers[i]
		units, mode := t.Limit.Counted(t.Cost, t.Mode)
		if !admitted && t.Mode != store.ModeRecord {
			mode = denied(mode, a.Allowed)
		}
		t.ID = e.find(t.Limit).decide(t.Limit, now, e.now, t.ID, units, 0, mode, a)
	}
	return true
}

// denied returns the mode of a take of that mode in a request that is denied, whose own log may have room.
func denied(mode store.Mode, room bool) store.Mode {
	if mode == store.ModeChargeDenied && !room {
		return mode
	}
	return store.ModePeek
}

// decideAll decides about all parts, whose entries are locked.
func decideAll(takes []store.Take, answers []store.Answer, parts []part, now instant) {
	mode, granted := takes[0].Mode, 0
	for i := range parts {
		parts[i].units, parts[i].mode = takes[i].Limit.Counted(takes[i].Cost, mode)
	}
	if mode == store.ModeAtMost {
		granted = grant(takes, parts, now)
	}
	admitted := true
	for i := range parts {
		p, limit := &parts[i], takes[i].Limit
		for j := range parts[:i] {
			if parts[j].log == p.log && p.log != nil {
				p.more += parts[j].units
			}
		}
		p.room = limit.HasRoom(p.log.used(limit, now, p.at)+p.more, p.units)
		admitted = admitted && p.room
	}
	for i := range parts {
		p, a, recorded := &parts[i], &answers[i], 0
		switch {
		case !admitted && mode != store.ModeRecord:
			p.mode = denied(p.mode, p.room)
		case mode != store.ModePeek: // earlier parts have recorded these by now
			p.more, recorded = 0, p.more
		}
		p.decide(&takes[i], now, a)
		a.Used, a.Granted = max(a.Used-recorded, 0), granted
	}
}

// grant sets how many units must fit in ModeAtMost: as many as all logs have room for, or 1 if one of them has no room.
// It returns that number, or 0. Keys that share a log need room for all of them. Permits do not count: a take needs one
// of them.
func grant(takes []store.Take, parts []part, now instant) int {
	least := math.MaxInt
	for i := range parts {
		p, limit, sharers := &parts[i], takes[i].Limit, 1
		for j := range parts[:i] {
			if parts[j].log == p.log && p.log != nil {
				sharers++
			}
		}
		left := math.MaxInt
		if !limit.Unlimited {
			left = (limit.Quota - p.log.used(limit, now, p.at)) / sharers
		}
		if !limit.Permits || left < 1 {
			least = min(least, takes[i].Grant(left))
		}
	}
	if least == math.MaxInt { // permits only
		least = takes[0].Cost
	}
	for i := range parts {
		if parts[i].mode = store.ModeCharge; !takes[i].Limit.Permits {
			parts[i].units = max(least, 1)
		}
	}
	return least
}

// used returns how many units of a log are in use at instant at. The log may be nil.
func (l *log) used(limit *store.Limit, now instant, at int64) int {
	switch {
	case limit.Algorithm != store.SlidingLog:
		v := l.view(limit, now, at)
		return v.Used()
	case l == nil:
		return 0
	}
	l.drop(at)
	return l.Units()
}

// decide decides about a part in its mode.
func (p *part) decide(t *store.Take, now instant, a *store.Answer) {
	if p.own || p.log == nil || p.log.counts() {
		t.ID = p.log.decide(t.Limit, now, p.at, t.ID, p.units, p.more, p.mode, a)
		return
	}
	if t.ID == 0 { // the shard is locked
		p.shard.lastID++
		t.ID = p.shard.lastID
	}
	admits := p.mode == store.ModeRecord
	switch {
	case p.mode == store.ModeChargeDenied:
		p.mode = store.ModeCharge // the denied takes of one key must not deny others
	case (admits || t.Limit.Unlimited) && p.log.Units()+p.units > store.MaxRecorded:
		p.mode = store.ModePeek // the recorded takes of one key must not trim those of others
	}
	p.log.decide(t.Limit, now, p.at, p.id(t.ID), p.units, p.more, p.mode, a)
	if admits {
		a.Allowed, a.Retry = true, 0
	}
}

// decide answers a take at instant at: that many units must fit into the log, beside more units. If the take is
// recorded in this mode, it adds an entry of that ID, or of one that the log assigns if it is 0. It returns the ID. The
// log is nil for a peek at one that is not there.
func (l *log) decide(
	limit *store.Limit, now instant, at int64, id uint64, units, more int, mode store.Mode, a *store.Answer,
) uint64 {
	if limit.Algorithm != store.SlidingLog {
		l.count(limit, now, at, units, more, mode, a)
		return id
	}
	if l == nil {
		*a = store.Answer{Known: true, Allowed: limit.HasRoom(0, units)}
		return id
	}
	window := int64(l.limit.Window)
	l.Drop(at - window)
	used := l.Units()
	allowed := limit.HasRoom(used+more, units) || mode == store.ModeRecord
	if allowed && mode != store.ModePeek || mode == store.ModeChargeDenied && !limit.NeverFits(units) {
		id = l.Add(at, id, units)
		if !allowed || mode == store.ModeRecord || limit.Unlimited {
			l.Trim(limit.Keeps(mode))
		}
	}
	*a = store.Answer{Known: true, Allowed: allowed, Used: used}
	if l.Units() > 0 {
		a.Reset = time.Duration(l.Oldest() + window - at)
	}
	switch {
	case allowed || limit.NeverFits(units):
	case more+units > limit.Quota: // until a key has a log of its own
		a.Retry = time.Duration(window)
	default:
		a.Retry = time.Duration(l.UnitAt(l.Units()+more+units-limit.Quota) + window - at)
	}
	return id
}
