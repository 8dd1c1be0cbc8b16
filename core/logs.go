package core

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/internal/slots"
	"github.com/sashlimit/sash/core/store"
)

// planLog is one of the logs that the limits of a plan draw from. Limits of one key share a log, except that those of
// requests in flight have another one. A limit of another algorithm than the sliding log has numbers instead, of its
// own, which are named like a log.
type planLog struct {
	key    *keySpec
	own    bool // key is that of the limiter or the rule
	slots  bool // of requests in flight
	counts bool // of another algorithm
	space  *logSpace
	limits Limits // those that decide, then those of a shadow
	shadow int    // how many of limits are a shadow's
	at     []int  // where each of limits is among all limits of the plan
	keep   time.Duration
	stored *atomic.Pointer[store.Plan]
}

// logSpace is where a policy keeps the logs of one key.
type logSpace struct {
	namespace *store.Namespace
	horizon   horizon
	counts    Algorithm // of a limit of another algorithm that has the limiter's key, or SlidingLog
}

// logSpaces has the logSpaces of a policy, by what their names have after the policy's.
type logSpaces struct {
	*namedSpaces

	own    *keySpec // the limiter's key
	label  string   // begins what the names have after the policy's, or empty
	secret []byte
	joint  error                 // why the store cannot decide over several logs, or nil
	slots  error                 // why it cannot hold slots of requests in flight, or nil
	counts func(Algorithm) error // why it does not have an algorithm, or nil
}

// namedSpaces are the spaces of a policy's name.
type namedSpaces struct {
	first  *logSpace
	others sync.Map // by label
}

// of returns the space with a label. counts is the algorithm if it is another than SlidingLog and the limit has the
// limiter's key.
func (s *logSpaces) of(label string, counts Algorithm) *logSpace {
	if s.label != "" {
		label = strings.TrimSuffix(s.label+"."+label, ".")
	}
	if label == "" {
		return s.first
	}
	if known, ok := s.others.Load(label); ok {
		return known.(*logSpace) //nolint:forcetypeassert // nothing else is stored
	}
	name := s.first.namespace.Policy() + ":" + label
	space := &logSpace{namespace: store.NewNamespace(name, s.secret), counts: counts}
	known, _ := s.others.LoadOrStore(label, space)
	return known.(*logSpace) //nolint:forcetypeassert // as above
}

// counting calls yield with the spaces of limits of other algorithms that have the limiter's key.
func (s *logSpaces) counting(yield func(*logSpace) bool) {
	s.others.Range(func(_, space any) bool {
		of := space.(*logSpace) //nolint:forcetypeassert // nothing else is stored
		return of.counts == SlidingLog || yield(of)
	})
}

// split finds the logs of a plan, unless all limits draw from the same log of the limiter's key.
func (s *logSpaces) split(p *plan) error {
	inFlight := slices.ContainsFunc(p.all, func(l Limit) bool { return l.inFlight })
	keys := slices.ContainsFunc(p.all, func(l Limit) bool { return l.by != nil && l.by != s.own })
	if !inFlight && !keys && p.counts == SlidingLog {
		return nil
	}
	if keys && s.joint != nil {
		return s.joint
	}
	if err := s.separate(p); err != nil {
		return err
	}
	if len(p.logs) == 1 && p.logs[0].counts && p.logs[0].key == s.own {
		p.only, p.logs = p.logs[0], nil
	}
	return nil
}

// separate finds all logs of a plan.
func (s *logSpaces) separate(p *plan) error {
	for i, limit := range p.all {
		key := limit.by
		if key == nil {
			key = s.own
		}
		if limit.inFlight && s.slots != nil {
			return s.slots
		}
		counts := limit.algorithm != SlidingLog
		if counts {
			if err := s.counts(limit.algorithm); err != nil {
				return err
			}
		}
		n := slices.IndexFunc(p.logs, func(l *planLog) bool {
			return l.key == key && l.slots == limit.inFlight && !l.counts && !counts
		})
		if n < 0 {
			n = len(p.logs)
			p.logs = append(p.logs, &planLog{
				key: key, own: key == s.own, slots: limit.inFlight, counts: counts,
				stored: new(atomic.Pointer[store.Plan]),
			})
		}
		log := p.logs[n]
		log.limits, log.at, log.keep = append(log.limits, limit), append(log.at, i), max(log.keep, limit.Window)
		if i >= len(p.limits) {
			log.shadow++
		}
	}
	if len(p.logs) > 1 && s.joint != nil {
		option := "InFlight"
		if p.counts != SlidingLog {
			option = "With"
		}
		return &ConfigError{
			Option: option, Value: limitsText(p.limits),
			Reason: "this store cannot decide about it together with other limits: it has no method TakeAll " +
				"(store.Joint); give it a limiter of its own",
		}
	}
	return s.place(p)
}

// hasSlots reports whether one of the plan's logs is of requests in flight.
func (p *plan) hasSlots() bool {
	return slices.ContainsFunc(p.logs, func(l *planLog) bool { return l.slots })
}

// place gives each log of a plan a space. The name of a space is made of the key's kind, and of the name of a limit if
// the plan has several keys of that kind.
func (s *logSpaces) place(p *plan) error {
	kinds := make(map[string]int)
	for _, slots := range []bool{false, true} {
		kinds[(&planLog{key: s.own, slots: slots}).kind()] = 1
	}
	for _, log := range p.logs {
		if log.key != s.own && !log.counts {
			kinds[log.kind()]++
		}
	}
	seen := make(map[string]bool)
	for _, log := range p.logs {
		label := ""
		switch {
		case log.counts:
			label = counterLabel(log, s.own)
		case log.key == s.own && log.slots:
			label = "f"
		case log.key != s.own:
			label = log.kind()
			if kinds[label] > 1 {
				names := make([]string, len(log.limits))
				for i := range log.limits {
					names[i] = log.limits[i].Name
				}
				label += "." + slices.Min(names)
			}
		}
		if seen[label] {
			return &ConfigError{
				Option: "By", Value: log.limits[0].String(),
				Reason: "two limits would be kept under one name: give these limits names, so that what they count " +
					"can be told apart",
			}
		}
		seen[label] = true
		counts := SlidingLog
		if log.key == s.own {
			counts = log.limits[0].algorithm
		}
		log.space = s.of(label, counts)
	}
	return nil
}

// letters name the algorithms in the names of logs.
var letters = [...]string{store.FixedWindow: "w", store.SlidingCounter: "s", store.TokenBucket: "t"}

const longestLabel = 32

// counterLabel returns what tells the numbers of a limit apart from those of others, and from logs: the algorithm, the
// key, the window, and the name if the limit was given one. The quota has no part in it, so that a customer who changes
// to a larger plan keeps what was used; and numbers are kept when other limits are added.
func counterLabel(l *planLog, own *keySpec) string {
	limit := &l.limits[0]
	label, window := letters[limit.algorithm], period(limit.Window)
	if limit.aligned.isSet() {
		label, window = "c", limit.aligned.calendar.Unit().String()
	}
	if l.key != own {
		label += "k." + l.key.text()
	}
	label += "." + window
	if !limit.named {
		return label
	}
	name := strings.ToLower(limit.Name)
	if len(name) > longestLabel {
		sum := sha256.Sum256([]byte(name))
		name = hex.EncodeToString(sum[:8])
	}
	return label + "." + name
}

// kind names the kind of the log's key. A log of slots is named in another way than one of windows.
func (l *planLog) kind() string {
	if l.slots {
		return "f." + l.key.text()
	}
	return "k." + l.key.text()
}

// joint is what a decision over several logs asks and is answered.
type joint struct {
	takes   []store.Take
	answers []store.Answer
	held    *slots.Held // the slots that the decision holds, or nil
}

// newJoint makes a joint for n logs. Most requests have two, which take one allocation.
func newJoint(n int) *joint {
	if n > 2 {
		return &joint{takes: make([]store.Take, n), answers: make([]store.Answer, n)}
	}
	two := new(struct {
		joint

		takes   [2]store.Take
		answers [2]store.Answer
	})
	two.joint.takes, two.joint.answers = two.takes[:n], two.answers[:n]
	return &two.joint
}

// merge makes one answer of those of the logs: the request is admitted if all have room, and waits for the last of
// them.
func (p *plan) merge(answers []store.Answer, cost int, mode store.Mode) (a store.Answer) {
	a.Allowed, a.Granted = true, answers[0].Granted // which is the same of all logs
	for n, log := range p.logs {
		from := &answers[n]
		a.Allowed = a.Allowed && from.Allowed
		if !log.slots { // nobody knows when a slot is given back
			a.Retry, a.Shadow = max(a.Retry, from.Retry), max(a.Shadow, from.Shadow)
		}
		for i, at := range log.at {
			a.State[at] = from.State[i]
			if from.Denied.Has(i) {
				a.Denied |= 1 << at
			}
		}
	}
	a.Allowed = a.Allowed || mode == store.ModeRecord
	if p.alone.NeverFits(cost) || a.Allowed {
		a.Retry = 0
	}
	if slices.ContainsFunc(p.all[len(p.limits):], func(l Limit) bool { return cost > l.most() && !l.inFlight }) {
		a.Shadow = 0
	}
	return a
}
