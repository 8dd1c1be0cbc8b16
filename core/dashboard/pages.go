package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/metricsum"
)

const (
	interval     = time.Second      // between messages
	maxPages     = 100              // open at the same time
	pageLife     = time.Minute      // after which a page connects again, so that servers can shut down
	writeTimeout = 10 * time.Second // of one message
	forget       = 2 * time.Minute  // after the last page was closed, what is known about keys is forgotten
)

// page is an open page, and what it was told.
type page struct {
	identities bool
	actions    bool
	shown      map[string]bool // policies in the last message; nil in front of the first
	told       int64           // the first second that was not told
}

// enter counts a page, unless there are too many. closed is closed by Close.
func (b *Board) enter() (closed <-chan struct{}, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pages >= maxPages {
		return nil, false
	}
	if b.pages++; b.unseen != nil {
		b.unseen.Stop()
	}
	b.keys.watch()
	if b.closed == nil {
		b.closed = make(chan struct{})
	}
	return b.closed, true
}

// leave is called when a page was closed.
func (b *Board) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pages--; b.pages == 0 {
		b.unseen = time.AfterFunc(forget, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.pages == 0 {
				b.keys.forget()
			}
		})
	}
}

// Close ends the streams of all open pages, which connect again. A server that shuts down waits up to a minute for them
// otherwise:
//
//	server.RegisterOnShutdown(board.Close)
func (b *Board) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed != nil {
		close(b.closed)
		b.closed = nil
	}
}

// message returns the next message of a page.
func (b *Board) message(p *page) *message {
	m := &message{Hot: b.keys.hottest(p.identities)}
	if p.shown == nil {
		m.Actions = &p.actions
	}
	m.Policies, m.Others = b.policies.tell(p)
	limiters := b.limiterOfEach()
	for i := range m.Policies {
		if l := named(limiters, m.Policies[i].Name); l != nil {
			m.Policies[i].Limits = l.Inside().Limits()
		}
	}
	for _, l := range limiters {
		if m.Actions != nil && l.Inside().Limits() != "" { // rules need a request
			m.Find = append(m.Find, l.Inside().Policy())
		}
	}
	m.Stores = b.storesNow()
	return m
}

// storesNow returns what stores hold. It asks them once a second at most, since that looks at each key of a store in
// memory.
func (b *Board) storesNow() []*core.Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); b.stores == nil || now.Sub(b.storesAt) >= interval/2 {
		b.stores, b.storesAt = append([]*core.Stats{}, metricsum.NewLimiters(b.open()).Sums()...), now
	}
	return b.stores
}

// stream sends server-sent events until the page is closed. Where a response is not passed on before it ends, as behind
// [http.TimeoutHandler] and in fiber, it sends one event, and the page connects again a second later. Such responses
// have no deadline; a Flush that does nothing cannot be told from one that works.
func (h *handler) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would collect events
	if r.Method == http.MethodHead {
		return
	}
	p := &page{identities: h.identities, actions: h.mayAct(r)}
	closed, ok := h.board.enter()
	if !ok {
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer h.board.leave()
	flusher := http.NewResponseController(w)
	tick, life := time.NewTicker(interval), time.NewTimer(pageLife)
	defer tick.Stop()
	defer life.Stop()
	fmt.Fprint(w, "retry: 1000\n\n")
	for {
		collected := flusher.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil
		_, err := fmt.Fprintf(w, "data: %s\n\n", encode(h.board.message(p)))
		if err != nil || collected || flusher.Flush() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-life.C:
			return
		case <-closed:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// message is what pages receive once a second.
type message struct {
	Policies []policyMessage `json:"policies"`
	Others   int             `json:"others"` // policies that are not shown
	Hot      []hotKey        `json:"hot"`
	Stores   []*core.Stats   `json:"stores"`
	Actions  *bool           `json:"actions,omitempty"` // in the first message: whether this page may use them
	Find     []string        `json:"find,omitempty"`    // likewise: policies whose keys can be looked up by name
}

// policyMessage is a policy. History has five numbers for each second that has ended since the last message, the latest
// second last: admitted, denied, near the limit, degraded, failed. It has all of them if that had no such policy.
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

// encode returns a message or an answer as JSON. None of their numbers is infinite.
func encode(m any) []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) //nolint:forbidigo // all of their fields can be encoded
	}
	return b
}
