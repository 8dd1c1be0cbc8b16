package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/internal/calendar"
	"github.com/sashlimit/sash/core/store"
)

// Log is one of the logs that the limits of a plan draw from. Limits of one key share a log, except that those of
// requests in flight have another one. A limit that keeps no entries has numbers of its own instead, which are named
// like a log.
type Log struct {
	Key    Key
	Own    bool // Key is that of the limiter or the rule
	Space  *Space
	Limits []Limit // those that decide, then those of a shadow
	Shadow int     // how many of Limits are a shadow's
	At     []int   // where each of Limits is among all limits of the plan; the last ones may be in none of these
	Keep   time.Duration
	Rule   *Rule // that has chosen the limits, or nil

	KeySpace *store.Namespace // names the key of the log whatever its unit is, for overrides, or nil

	spaces *Spaces
	suffix string // of the name of KeySpace: begins with a dot and tells the key from others of its kind, or is empty

	constant *store.Plan // if no request chooses limits, and they have no calendar
	varies   bool        // requests choose the limits
	stored   *storedPlan
}

type storedPlan = atomic.Pointer[store.Plan]

// empty returns a copy without limits.
func (l *Log) empty() *Log {
	own := *l
	own.Limits, own.Shadow, own.At, own.constant, own.stored = nil, 0, nil, nil, new(storedPlan)
	return &own
}

// moved returns a copy of the log for a plan in which its limits have other places.
func (l *Log) moved(to func(at int) int) *Log {
	own := *l
	own.At = make([]int, len(l.At))
	for i, at := range l.At {
		own.At[i] = to(at)
	}
	return &own
}

// LogOf returns the index of the log that a limit draws from.
func LogOf(logs []*Log, limit int) int {
	return slices.IndexFunc(logs, func(l *Log) bool { return slices.Contains(l.At, limit) })
}

// InFlight reports whether the log is of requests in flight.
func (l *Log) InFlight() bool { return l.Limits[0].InFlight }

// Deciding returns how many of the limits decide. They are the first ones.
func (l *Log) Deciding() int { return len(l.Limits) - l.Shadow }

// Unit returns what the log counts, or an empty text: requests.
func (l *Log) Unit() string { return l.Limits[0].Unit }

// KeepsEntries reports whether the log has entries, and not a few numbers.
func (l *Log) KeepsEntries() bool { return l.Limits[0].KeepsEntries() }

// StorePlan returns what the store is asked. It is made again after a longer window or a larger quota was chosen, as
// entries must be kept for every plan that may count them, and when the period of a calendar has ended.
func (l *Log) StorePlan() *store.Plan {
	if l.constant != nil {
		return l.constant
	}
	return l.storePlan()
}

// storePlan is separate so that StorePlan is short enough to be inlined.
func (l *Log) storePlan() *store.Plan {
	sp, keep, most := l.stored.Load(), l.Space.Keep(), int(l.Space.most.Load())
	if sp == nil || sp.Keep < keep || sp.Bound < most || !isPresent(sp) {
		sp = newStorePlan(l.Limits, store.Plan{
			Shadow: l.Shadow, Keep: max(keep, l.Keep), Bound: most, Varies: l.varies,
		})
		l.stored.Store(sp)
	}
	return sp
}

func newStorePlan(limits []Limit, p store.Plan) *store.Plan {
	for i := range limits {
		p.Slots = limits[i].InFlight
		p.Limits = append(p.Limits, limits[i].ForStore())
	}
	return store.NewPlan(p)
}

// Stored returns the plan of a log with these limits, which has no others.
func Stored(limits ...Limit) *store.Plan { return newStorePlan(limits, store.Plan{}) }

// periodsAround returns the calendar's periods around an instant, as a store gets them.
func periodsAround(c calendar.Calendar, now time.Time) *store.Calendar {
	begin, end := c.Period(now)
	before, _ := c.Period(begin.Add(-time.Second))
	_, after := c.Period(end)
	return &store.Calendar{before.UnixMicro(), begin.UnixMicro(), end.UnixMicro(), after.UnixMicro()}
}

// isPresent reports whether a store plan has the calendar's present period. It is true for plans without a calendar.
func isPresent(p *store.Plan) bool {
	if len(p.Limits) == 0 || p.Limits[0].Calendar == nil {
		return true
	}
	c, now := p.Limits[0].Calendar, time.Now().UnixMicro()
	return c[1] <= now && now < c[2]
}

// Space is where a policy keeps the logs of one key. Its logs keep entries for as long, and as many units, as any of
// the plans so far may count.
type Space struct {
	Namespace *store.Namespace
	Counter   store.Algorithm // of a limit that keeps no entries, or SlidingLog
	Own       bool            // it is of windows and of the policy's own key

	keep atomic.Int64 // the longest window so far
	most atomic.Int64 // units of the largest quota so far
}

// Keep returns the longest window so far.
func (s *Space) Keep() time.Duration { return time.Duration(s.keep.Load()) }

func raise(most *atomic.Int64, to int64) {
	for {
		if now := most.Load(); to <= now || most.CompareAndSwap(now, to) {
			return
		}
	}
}

// NamedSpaces are the spaces of a policy's name.
type NamedSpaces struct {
	own    Space
	others sync.Map // by what their names have after the policy's
	keys   sync.Map // of *store.Namespace, by the same: see Log.KeySpace
}

// NewNamedSpaces makes the spaces of a name. Keys are hashed with the secret, unless it is empty.
func NewNamedSpaces(policy string, secret []byte) *NamedSpaces {
	return &NamedSpaces{own: Space{Namespace: store.NewNamespace(policy, secret)}}
}

// Own returns the space of the policy's own key.
func (s *NamedSpaces) Own() *Space { return &s.own }

// Others calls yield with the other spaces of the policy's own key: of units other than requests, and of limits that
// keep no entries.
func (s *NamedSpaces) Others(yield func(*Space) bool) {
	s.others.Range(func(_, space any) bool {
		of := space.(*Space) //nolint:forcetypeassert // nothing else is stored
		return !of.Own || yield(of)
	})
}

// Spaces finds the logs of plans.
type Spaces struct {
	*NamedSpaces

	OwnKey Key
	Label  string // begins what the names have after the policy's, or empty
	Secret []byte
	Varies bool              // requests choose the limits
	Named  bool              // logs have a KeySpace
	Check  func(*Plan) error // reports what the store cannot decide
}

// space returns the space with a label.
func (s *Spaces) space(label string, log *Log) *Space {
	if s.Label != "" {
		label = strings.TrimSuffix(s.Label+"."+label, ".")
	}
	if label == "" {
		return &s.own
	}
	known, _ := s.others.LoadOrStore(label, &Space{
		Namespace: store.NewNamespace(s.own.Namespace.Policy()+":"+label, s.Secret),
		Counter:   log.Limits[0].Algorithm, Own: log.Own && !log.InFlight(),
	})
	return known.(*Space) //nolint:forcetypeassert // nothing else is stored
}

// Validate reports what the store cannot decide of a plan. It is Split without a place for logs.
func (s *Spaces) Validate(p *Plan) error {
	own := *p
	s.findLogs(&own)
	return s.Check(&own)
}

// findLogs finds the logs of a plan, without their spaces.
func (s *Spaces) findLogs(p *Plan) {
	p.Logs = nil
	for i, limit := range p.All() {
		key := limit.Key
		if key == nil {
			key = s.OwnKey
		}
		n := slices.IndexFunc(p.Logs, func(l *Log) bool {
			return l.Key == key && l.Unit() == limit.Unit && l.InFlight() == limit.InFlight && l.KeepsEntries() &&
				limit.KeepsEntries()
		})
		if n < 0 {
			n = len(p.Logs)
			p.Logs = append(p.Logs, &Log{Key: key, Own: key == s.OwnKey, varies: s.Varies, stored: new(storedPlan)})
		}
		log := p.Logs[n]
		log.Limits, log.At, log.Keep = append(log.Limits, limit), append(log.At, i), max(log.Keep, limit.Window)
		if i >= len(p.Limits) {
			log.Shadow++
		}
	}
}

// Split finds the logs of a plan.
func (s *Spaces) Split(p *Plan) error {
	s.findLogs(p)
	if err := s.Check(p); err != nil {
		return err
	}
	if err := s.place(p); err != nil {
		return err
	}
	for _, log := range p.Logs {
		raise(&log.Space.keep, int64(log.Keep))
		for _, l := range log.Limits[:log.Deciding()] {
			raise(&log.Space.most, int64(l.Quota))
		}
		log.setConstant()
	}
	return nil
}

// place gives each log of a plan a space. The name of a space is made of the key's kind, and of the name of a limit if
// the plan has several keys of that kind.
func (s *Spaces) place(p *Plan) error {
	kinds := map[string]int{"f." + s.OwnKey.LogName(): 1} // as kind returns them
	for _, log := range p.Logs {
		kinds[log.unitLabel()+"k."+s.OwnKey.LogName()] = 1
	}
	for _, log := range p.Logs {
		if !log.Own && log.KeepsEntries() {
			kinds[log.kind()]++
		}
	}
	seen := make(map[string]bool)
	for _, log := range p.Logs {
		label := log.label(kinds)
		if seen[label] {
			return configError("By", log.Limits[0].Text, "the logs of two limits would have the same name",
				"set Name on these limits")
		}
		seen[label] = true
		log.spaces, log.Space = s, s.space(label, log)
		if s.Named {
			log.KeySpace = s.keySpace(p, log)
		}
	}
	return nil
}

// keySpace returns what names the key of a log whatever its unit is, and sets suffix of the log.
func (s *Spaces) keySpace(p *Plan, log *Log) *store.Namespace {
	label := strings.TrimSuffix("o."+s.Label, ".")
	if log.Own {
		return s.Keys(label)
	}
	label += "." + KeyLabel(log.Key)
	if slices.ContainsFunc(p.Logs, func(other *Log) bool {
		return !other.Own && other.Key != log.Key && other.Key.LogName() == log.Key.LogName()
	}) {
		log.suffix = "." + firstName(p, log.Key)
	}
	return s.Keys(label + log.suffix)
}

// KeyLabel names the kind of a key that is not the policy's own.
func KeyLabel(k Key) string { return "k." + k.LogName() }

// firstName returns the first name of the limits of a key.
func firstName(p *Plan, key Key) (name string) {
	for _, log := range p.Logs {
		for i := range log.Limits {
			if l := &log.Limits[i]; log.Key == key && (name == "" || l.Name < name) {
				name = l.Name
			}
		}
	}
	return name
}

// Keys returns the namespace of keys with a label.
func (s *Spaces) Keys(label string) *store.Namespace {
	known, _ := s.keys.LoadOrStore(label, store.NewNamespace(s.own.Namespace.Policy()+":"+label, s.Secret))
	return known.(*store.Namespace) //nolint:forcetypeassert // nothing else is stored
}

// label returns what the name of the log has after the policy's. kinds has how many keys of each kind there are.
func (l *Log) label(kinds map[string]int) string {
	switch {
	case !l.KeepsEntries():
		return l.unitLabel() + l.counterLabel()
	case l.Own && l.InFlight():
		return "f"
	case l.Own:
		return strings.TrimSuffix(l.unitLabel(), ".")
	case kinds[l.kind()] == 1:
		return l.kind()
	}
	first := slices.MinFunc(l.Limits, func(a, b Limit) int { return strings.Compare(a.Name, b.Name) })
	return l.kind() + "." + first.Name
}

// kind names the kind of the log's key. A log of requests in flight is named in another way than one of windows.
func (l *Log) kind() string {
	if l.InFlight() {
		return "f." + l.Key.LogName()
	}
	return l.unitLabel() + "k." + l.Key.LogName()
}

// unitLabel begins what the names of logs have after the policy's, unless they count requests.
func (l *Log) unitLabel() string {
	if l.Unit() == "" {
		return ""
	}
	return "u." + l.Unit() + "."
}

// letters name the algorithms in the names of logs.
var letters = [...]string{store.FixedWindow: "w", store.SlidingCounter: "s", store.TokenBucket: "t"}

const longestLabel = 32

// counterLabel returns what distinguishes the numbers of a limit from those of others, and from logs: the algorithm,
// the key, the window, and the name if the limit was given one. The quota has no part in it, so that a customer who
// changes to a larger plan keeps what was used; and numbers are kept when other limits are added.
func (l *Log) counterLabel() string {
	limit := &l.Limits[0]
	label := letters[limit.Algorithm]
	if limit.Calendar.IsSet() {
		label = "c"
	}
	if !l.Own {
		label += "k." + l.Key.LogName()
	}
	label += "." + limit.Period
	if !limit.Named {
		return label
	}
	name := strings.ToLower(limit.Name)
	if len(name) > longestLabel {
		sum := sha256.Sum256([]byte(name))
		name = hex.EncodeToString(sum[:8])
	}
	return label + "." + name
}
