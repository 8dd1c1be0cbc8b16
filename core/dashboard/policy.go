package dashboard

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sashlimit/sash/core/internal/metricsum"
)

const (
	seconds     = 300 // of history
	maxPolicies = 100 // that pages show, the busiest ones
)

// What has a history.
const (
	admitted = iota
	denied
	near
	degraded
	failed
	series
)

// counted is what pages show of metrics: of those with a value of their label, the sum in a history, or what they say
// went wrong since the program started.
var counted = [...]struct {
	metric, value string
	history       int // or series, for none
	wrong         string
}{
	{"sash_decisions_total", "allowed", admitted, ""},
	{"sash_decisions_total", "listed", admitted, ""},
	{"sash_decisions_total", "skipped", admitted, ""},
	{"sash_decisions_total", "denied", denied, ""},
	{"sash_decisions_total", "banned", denied, ""},
	{"sash_decisions_total", "forbidden", denied, ""},
	{"sash_near_limit_total", "", near, ""},
	{"sash_degraded_decisions_total", "", degraded, "decided without the store"},
	{"sash_decisions_total", "failed", failed, "failed (500)"},
	{"sash_decisions_total", "no key", series, "without a key (400)"},
	{"sash_refunds_total", "failed", series, "failed refunds"},
	{"sash_shadow_decisions_total", "denied", series, "would be denied by the shadow policy"},
	{"sash_shadow_decisions_total", "failed", series, "not decided by the shadow policy"},
	{"sash_rules_reloads_total", "failed", series, "rules files with mistakes"},
}

type counts [len(counted)]uint64

// policy is what pages show of a policy. The mutex of the board guards it.
type policy struct {
	name    string
	counts  counts // when they were read last
	history [seconds][series]uint32
	at      int  // in history, where the next second goes
	shown   bool // in the last message
}

// addSecond adds what was counted since the last call to the histories, and reports whether there is anything.
func (b *Board) addSecond() (changed bool) {
	now := make(map[string]counts)
	b.events.Report(func(s metricsum.Sample) {
		of := now[s.Policy]
		for i, c := range counted {
			if c.metric == s.Prometheus && (c.value == "" || c.value == s.Values[0]) {
				of[i] += uint64(s.Value)
			}
		}
		now[s.Policy] = of
	})
	for name, n := range now {
		p := b.policies[name]
		if p == nil {
			if b.policies == nil {
				b.policies = make(map[string]*policy)
			}
			p = &policy{name: name}
			b.policies[name] = p
		}
		p.history[p.at] = [series]uint32{}
		for i, c := range counted {
			if c.history < series {
				p.history[p.at][c.history] += uint32(min(n[i]-p.counts[i], 1<<31))
			}
		}
		changed = changed || p.counts != n
		p.counts, p.at = n, (p.at+1)%seconds
	}
	return changed
}

// message returns what happened to a policy in the latest seconds.
func (p *policy) message(latest int, limits string) policyMessage {
	m := policyMessage{Name: p.name, Limits: limits, History: make([][series]uint32, latest)}
	for i := range m.History {
		m.History[i] = p.history[(p.at-latest+i+seconds)%seconds]
	}
	for i, c := range counted {
		if c.wrong != "" && p.counts[i] > 0 {
			m.Wrong = append(m.Wrong, wrong{c.wrong, p.counts[i]})
		}
	}
	return m
}

// busiest returns the policies that pages show, by name.
func (b *Board) busiest() []*policy {
	recent := make(map[*policy]uint64, len(b.policies))
	for _, p := range b.policies {
		for _, s := range p.history {
			recent[p] += uint64(s[admitted]) + uint64(s[denied]) + uint64(s[failed])
		}
	}
	byName := func(x, y *policy) int { return cmp.Compare(x.name, y.name) }
	shown := slices.SortedFunc(maps.Values(b.policies), func(x, y *policy) int {
		return cmp.Or(cmp.Compare(recent[y], recent[x]), byName(x, y))
	})
	shown = shown[:min(len(shown), maxPolicies)]
	slices.SortFunc(shown, byName)
	return shown
}
