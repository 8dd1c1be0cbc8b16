package core

import (
	"sync/atomic"
	"time"
)

// WithDenyCache is how long at most a denial is remembered in this process, so that who is denied and keeps
// trying does not reach the store: 0, which is never, to 1m. The default is 1s. After that one try asks the store, and
// the others that come meanwhile are denied for up to a sixteenth longer.
//
// Until the wait of a denial is over it stays true, because a log loses entries only by time; so this denies nobody
// whom the store would admit. What another process undoes or resets is seen that much later. A larger cost than the one
// denied is denied as well, and told the wait of the smaller one. In tests whose store has a clock of its own, turn it off.
func WithDenyCache(d time.Duration) Option {
	return func(c *config) {
		if d < 0 || d > time.Minute {
			c.fault("WithDenyCache", d.String(), "a denial is remembered for 0 (never) to 1m")
			return
		}
		c.denyCache = d
	}
}

// denials are the latest denials of a store, by key. Where more keys meet in a place than it has room for, the
// one whose denial ends first goes: it is only a cache.
type denials struct {
	longest time.Duration
	start   time.Time
	places  [denialPlaces]denialPlace
}

const denialPlaces = 4096

type denialPlace struct {
	latest [2]atomic.Pointer[denial]
	drops  atomic.Uint32 // so that an answer which was under way meanwhile is not kept
}

// of is where key's denial is, or nil.
func (p *denialPlace) of(key *StorageKey) (*denial, *atomic.Pointer[denial]) {
	for i := range p.latest {
		if d := p.latest[i].Load(); d != nil && d.key.names(key) {
			return d, &p.latest[i]
		}
	}
	return nil, nil
}

// free is where a new denial of key goes.
func (p *denialPlace) free(key *StorageKey) *atomic.Pointer[denial] {
	if _, own := p.of(key); own != nil {
		return own
	}
	a, b := p.latest[0].Load(), p.latest[1].Load()
	if a == nil || b != nil && a.until < b.until {
		return &p.latest[0]
	}
	return &p.latest[1]
}

type denial struct {
	key    kept
	limits *Limit // the first of the plan's: other limits, another question
	cost   int
	sent   time.Duration // before the store was asked, since start
	until  time.Duration
	asked  atomic.Bool   // one has asked again, so that not all do at once
	spare  time.Duration // until when the others are denied meanwhile, though never beyond the wait
	answer Answer
}

// ticket is what was known of a place before the store was asked.
type ticket struct {
	place *denialPlace
	drops uint32
	sent  time.Duration
}

func newDenials(longest time.Duration, start time.Time) *denials {
	if longest == 0 {
		return nil
	}
	return &denials{longest: longest, start: start}
}

func (d *denials) place(key *StorageKey) *denialPlace {
	return &d.places[key.hash()%denialPlaces]
}

// remembers reports whether denials of t are kept: not if each is to be counted, or others look at the log as well.
func (d *denials) remembers(t *Take) bool {
	return d != nil && t.Shadow == 0 && (t.Mode == ModeCharge || t.Mode == ModePeek)
}

// answer is what the store would say, if that is known.
func (d *denials) answer(t *Take, a *Answer) (known bool) {
	if !d.remembers(t) {
		return false
	}
	last, _ := d.place(&t.Key).of(&t.Key)
	if last == nil || last.limits != &t.Limits[0] || t.Cost < last.cost {
		return false
	}
	if t.Mode == ModePeek && t.Cost > last.cost { // who only asks wants the wait itself, not the least it can be
		return false
	}
	for i := range t.Limits {
		if t.Cost > t.Limits[i].Quota { // no wait helps, and that is another answer
			return false
		}
	}
	now := time.Since(d.start)
	if now >= last.until && (now >= last.spare || last.asked.CompareAndSwap(false, true)) {
		return false
	}
	*a = last.answer
	a.Retry -= now - last.sent
	for i := range t.Limits {
		a.State[i].Reset = max(0, a.State[i].Reset-(now-last.sent))
	}
	return true
}

// expect is called before the store is asked: its clock is read later than ours, so a wait counted from here ends
// no later than the store's.
func (d *denials) expect(t *Take, now time.Duration) (w ticket) {
	if d.remembers(t) {
		w.place = d.place(&t.Key)
		w.drops, w.sent = w.place.drops.Load(), now
	}
	return w
}

func (d *denials) note(t *Take, a *Answer, w ticket) {
	if w.place == nil {
		return
	}
	if last, own := w.place.of(&t.Key); a.Allowed && last != nil && last.asked.Load() {
		own.CompareAndSwap(last, nil) // it has been undone or reset elsewhere
	}
	if a.Allowed || a.Retry <= 0 {
		return
	}
	lasts := a.Retry
	for i := range t.Limits {
		if a.State[i].Used+t.Cost > t.Limits[i].Quota { // its numbers are shown, and are right until a unit leaves
			lasts = min(lasts, a.State[i].Reset)
		}
	}
	latest := &denial{
		key: t.Key.kept(false), limits: &t.Limits[0], cost: t.Cost, answer: *a,
		sent: w.sent, until: w.sent + min(lasts, d.longest), spare: w.sent + min(lasts, d.longest+d.longest/16),
	}
	free := w.place.free(&t.Key)
	free.Store(latest)
	if w.place.drops.Load() != w.drops {
		free.CompareAndSwap(latest, nil)
	}
}

// drop forgets a key's denials: something of its log has been given back.
func (d *denials) drop(key *StorageKey) {
	if d == nil {
		return
	}
	p := d.place(key)
	p.drops.Add(1)
	for {
		last, own := p.of(key)
		if last == nil {
			return
		}
		own.CompareAndSwap(last, nil)
	}
}
