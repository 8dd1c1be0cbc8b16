package dashboard

import (
	"encoding/json"

	"github.com/sashlimit/sash/core"
)

// message is what pages receive once a second.
type message struct {
	Second   int64           `json:"second"` // Unix time
	Policies []policyMessage `json:"policies"`
	Others   int             `json:"others"` // policies that are not shown
	Hot      []hotKey        `json:"hot"`
	Stores   []storeMessage  `json:"stores"`
	Actions  *bool           `json:"actions,omitempty"` // in the first message: whether this page may use them
}

// policyMessage is a policy. History has five numbers for each second, the latest second last: admitted, denied, near
// the limit, degraded, failed. It has one second, and in the first message all of them.
type policyMessage struct {
	Name    string           `json:"name"`
	Limits  string           `json:"limits,omitempty"`
	History [][series]uint32 `json:"history"`
	Wrong   []wrong          `json:"wrong,omitempty"` // what went wrong since the program started
}

type wrong struct {
	What  string `json:"what"`
	Count uint64 `json:"count"`
}

// troubles are the counters of what may have to be repaired.
var troubles = [counters]string{
	failed:       "failed (500)",
	noKey:        "without a key (400)",
	refundFailed: "failed refunds",
	shadowDenied: "would be denied by the shadow policy",
	shadowFailed: "not decided by the shadow policy",
	reloadFailed: "rules files with mistakes",
	degraded:     "decided without the store",
}

// storeMessage is how limiters get on with their store, or how full a store in memory is.
type storeMessage struct {
	Policy   string `json:"policy"`
	Breaker  string `json:"breaker,omitempty"`
	Outages  uint64 `json:"outages"`
	Failures uint64 `json:"failures"`
	Backlog  int64  `json:"backlog"`
	Replayed uint64 `json:"replayed"`
	Lost     uint64 `json:"lost"`
	Denials  int    `json:"denials"`
	Keys     int    `json:"keys"`
	MaxKeys  int    `json:"maxKeys"`
	Bytes    int    `json:"bytes"`
	Shared   uint64 `json:"shared"`
	InFlight int    `json:"inFlight"`
}

// encode returns a message or an answer as JSON. None of their numbers is infinite.
func encode(m any) []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) //nolint:forbidigo // all of their fields can be encoded
	}
	return b
}

func (p *policy) message(latest int, limits string) policyMessage {
	m := policyMessage{Name: p.name, Limits: limits, History: make([][series]uint32, latest)}
	for i := range m.History {
		m.History[i] = p.history[(p.at-latest+i+seconds)%seconds]
	}
	for i, what := range troubles {
		if n := p.count[i].Load(); what != "" && n > 0 {
			m.Wrong = append(m.Wrong, wrong{what, n})
		}
	}
	return m
}

func storeMessageOf(s *core.Stats) storeMessage {
	return storeMessage{
		Policy: s.Policy, Breaker: s.Breaker, Outages: s.Outages, Failures: s.Failures, Backlog: s.Backlog,
		Replayed: s.Replayed, Lost: s.Lost, Denials: s.Denials,
		Keys: s.Keys, MaxKeys: s.MaxKeys, Bytes: s.Bytes, Shared: s.Shared, InFlight: s.InFlight,
	}
}
