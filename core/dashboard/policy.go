package dashboard

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
)

const (
	seconds     = 300 // of history
	maxPolicies = 100 // that pages show, the busiest ones

	series = noKey // kinds in front of it have a history
)

// What is counted of a policy.
const (
	admitted = iota
	denied
	near
	degraded
	failed
	noKey
	refundFailed
	shadowDenied
	shadowFailed
	reloadFailed
	kinds
)

var kindOf = map[event.Outcome]int{
	event.Allowed: admitted, event.Listed: admitted, event.Skipped: admitted,
	event.Denied: denied, event.Banned: denied, event.Forbidden: denied,
	event.Failed: failed, event.NoKey: noKey, event.RefundFailed: refundFailed,
	event.ShadowFailed: shadowFailed, event.ReloadFailed: reloadFailed,
}

// wrongs says what went wrong.
var wrongs = [kinds]string{
	degraded: "decided without the store", failed: "failed (500)", noKey: "without a key (400)",
	refundFailed: "failed refunds", shadowDenied: "would be denied by the shadow policy",
	shadowFailed: "not decided by the shadow policy", reloadFailed: "rules files with mistakes",
}

// policies are what was counted of each policy, until it is forgotten.
type policies struct {
	mu     sync.Mutex
	start  time.Time
	byName map[string]*policy
}

type policy struct {
	name    string
	total   [kinds]uint64               // since the program started
	history [seconds + 1][series]uint32 // each second in its place: the present one and those before it
	second  int64                       // the present one
	recent  uint64                      // requests in history
}

// now returns the present second. The lock must be held.
func (ps *policies) now() int64 {
	if ps.start.IsZero() {
		ps.start = time.Now().Add(-seconds * time.Second) // so that there are seconds before the first one
	}
	return int64(time.Since(ps.start) / time.Second)
}

// add counts an event.
func (ps *policies) add(e *core.Event) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.byName[e.Policy]
	if p == nil {
		if ps.byName == nil {
			ps.byName = make(map[string]*policy)
		}
		p = &policy{name: strings.Clone(e.Policy), second: ps.now()}
		ps.byName[p.name] = p
	}
	p.advance(ps.now())
	if kind, ok := kindOf[e.Outcome]; ok {
		p.count(kind)
	}
	if e.NearLimit() {
		p.count(near)
	}
	if e.Decision.Degraded {
		p.count(degraded)
	}
	if e.Shadow != nil && !e.Shadow.Allowed {
		p.count(shadowDenied)
	}
}

func (p *policy) at(second int64) *[series]uint32 { return &p.history[second%(seconds+1)] }

// requests returns how many requests a second had.
func requests(of *[series]uint32) uint64 {
	return uint64(of[admitted]) + uint64(of[denied]) + uint64(of[failed])
}

// advance begins the seconds from the last one on.
func (p *policy) advance(now int64) {
	for p.second = max(p.second, now-seconds-1); p.second < now; {
		p.second++
		p.recent -= requests(p.at(p.second))
		*p.at(p.second) = [series]uint32{}
	}
}

func (p *policy) count(kind int) {
	if p.total[kind]++; kind < series {
		p.at(p.second)[kind]++
	}
	if kind == admitted || kind == denied || kind == failed {
		p.recent++
	}
}

// forget forgets what was counted of a policy.
func (ps *policies) forget(name string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	delete(ps.byName, name)
}

// tell returns the policies that a page shows, by name, with the seconds that have ended since it was last told: those
// that it has not shown with the whole history. others is how many it does not show.
func (ps *policies) tell(p *page) (all []policyMessage, others int) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	now, shown := ps.now(), make(map[string]bool)
	busiest := make([]*policy, 0, len(ps.byName))
	for _, one := range ps.byName {
		one.advance(now)
		busiest = append(busiest, one)
	}
	byName := func(a, b *policy) int { return cmp.Compare(a.name, b.name) }
	slices.SortFunc(busiest, func(a, b *policy) int { return cmp.Or(cmp.Compare(b.recent, a.recent), byName(a, b)) })
	busiest = busiest[:min(len(busiest), maxPolicies)]
	slices.SortFunc(busiest, byName)
	all = make([]policyMessage, 0, len(busiest))
	for _, one := range busiest {
		since := now - seconds
		if p.shown[one.name] {
			since = max(since, p.told)
		}
		all, shown[one.name] = append(all, one.message(since, now)), true
	}
	p.told, p.shown = now, shown
	return all, len(ps.byName) - len(all)
}

// message returns what happened to a policy from a second on until now, and what went wrong.
func (p *policy) message(since, now int64) policyMessage {
	m := policyMessage{Name: p.name, History: [][series]uint32{}}
	for ; since < now; since++ {
		m.History = append(m.History, *p.at(since))
	}
	for kind, what := range wrongs {
		if what != "" && p.total[kind] > 0 {
			m.Wrong = append(m.Wrong, wrong{what, p.total[kind]})
		}
	}
	return m
}
