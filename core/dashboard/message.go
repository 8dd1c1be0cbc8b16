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
	Stores   []*core.Stats   `json:"stores"`
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
