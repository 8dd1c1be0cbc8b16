package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/metricsum"
)

const (
	maxPages     = 100              // open at the same time
	pageLife     = time.Minute      // after which a page connects again, so that servers can shut down
	writeTimeout = 10 * time.Second // of one message
)

// page is an open page. Its channel has room for one message.
type page struct {
	messages   chan []byte
	identities bool
	actions    bool
}

// open adds a page, unless there are too many. closed is closed by Close.
func (b *Board) open(identities, actions bool) (p *page, closed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pages) >= maxPages {
		return nil, nil
	}
	b.keys.watch()
	if b.pages == nil {
		b.pages = make(map[*page]struct{})
	}
	if b.closed == nil {
		b.closed = make(chan struct{})
	}
	p = &page{make(chan []byte, 1), identities, actions}
	b.pages[p] = struct{}{}
	b.unseen = 0
	p.messages <- b.first(p)
	if b.running.CompareAndSwap(false, true) {
		go b.run()
	}
	return p, b.closed
}

func (b *Board) close(p *page) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pages, p)
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

// send sends the latest second to all pages. A page that has not fetched its last message gets the whole history in its
// place. The lock must be held.
func (b *Board) send() {
	latest := make(map[bool][]byte) // with identities or without
	for p := range b.pages {
		select {
		case <-p.messages:
			p.messages <- b.first(p)
			continue
		default:
		}
		if latest[p.identities] == nil {
			latest[p.identities] = encode(b.message(1, p.identities))
		}
		p.messages <- latest[p.identities]
	}
	for _, p := range b.policies {
		p.shown = false
	}
	for _, p := range b.busiest() {
		p.shown = true
	}
}

// first returns a page's first message. The lock must be held.
func (b *Board) first(p *page) []byte {
	m := b.message(seconds, p.identities)
	m.Actions = &p.actions
	for _, a := range b.limiters {
		if a.limits != "" && !slices.Contains(m.Find, a.policy) { // rules need a request
			m.Find = append(m.Find, a.policy)
		}
	}
	return encode(m)
}

// message returns what happened in the latest seconds, and the history of policies that pages have not shown yet. The
// lock must be held.
func (b *Board) message(latest int, identities bool) *message {
	m := &message{
		Second: time.Now().Unix(), Hot: b.keys.hottest(identities), Policies: []policyMessage{}, Stores: b.storesNow(),
	}
	limits := make(map[string]string, len(b.limiters))
	for _, a := range slices.Backward(b.limiters) { // the first of a policy is shown
		limits[a.policy] = a.limits
	}
	shown := b.busiest()
	m.Others = len(b.policies) - len(shown)
	for _, p := range shown {
		n := latest
		if !p.shown {
			n = seconds
		}
		m.Policies = append(m.Policies, p.message(n, limits[p.name]))
	}
	return m
}

// storesNow returns what stores hold. It asks them once a second at most, since that looks at each key of a store in
// memory. The lock must be held.
func (b *Board) storesNow() []*core.Stats {
	if now := time.Now(); b.stores == nil || now.Sub(b.storesAt) >= interval/2 {
		limiters := make([]*core.Limiter, len(b.limiters))
		for i, a := range b.limiters {
			limiters[i] = a.Limiter
		}
		b.stores, b.storesAt = append([]*core.Stats{}, metricsum.NewLimiters(limiters).Sums()...), now
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
	p, closed := h.board.open(h.identities, h.mayAct(r))
	if p == nil {
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer h.board.close(p)
	flusher := http.NewResponseController(w)
	life := time.NewTimer(pageLife)
	defer life.Stop()
	fmt.Fprint(w, "retry: 1000\n\n")
	for {
		select {
		case m := <-p.messages:
			collected := flusher.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil
			if _, err := fmt.Fprintf(w, "data: %s\n\n", m); err != nil || collected || flusher.Flush() != nil {
				return
			}
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
	Second   int64           `json:"second"` // Unix time
	Policies []policyMessage `json:"policies"`
	Others   int             `json:"others"` // policies that are not shown
	Hot      []hotKey        `json:"hot"`
	Stores   []*core.Stats   `json:"stores"`
	Actions  *bool           `json:"actions,omitempty"` // in the first message: whether this page may use them
	Find     []string        `json:"find,omitempty"`    // likewise: policies whose keys can be looked up by name
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

// encode returns a message or an answer as JSON. None of their numbers is infinite.
func encode(m any) []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) //nolint:forbidigo // all of their fields can be encoded
	}
	return b
}
