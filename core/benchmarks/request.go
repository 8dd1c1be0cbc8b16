package benchmarks

import (
	"net/http"
	"time"

	"github.com/sashlimit/sash/core"
)

// request sends an application one request, always the same one from the same
// address, and returns the status of the response.
type request func() (status int)

// framework makes applications that answer GET / with 200 and nothing else,
// alone or behind a limiter that counts by the address of the peer.
type framework struct {
	name  string
	other string // the framework's own limiter, or the one that most take for it
	bare  func() request
	sash  func(core.Policy) request
	limit func(quota int, window time.Duration) request // behind other
}

// frameworks run in this order, in turn.
var frameworks = []framework{onNetHTTP, onChi, onGin, onEcho, onFiber}

// peer is who sends the requests.
const peer = "192.0.2.1"

// drive sends requests to a handler without a server, whose work would be the
// same for all.
func drive(h http.Handler) request {
	r, err := http.NewRequest(http.MethodGet, "/", http.NoBody)
	if err != nil {
		panic(err)
	}
	r.RemoteAddr = peer + ":1234"
	w := &discard{header: make(http.Header)}
	return func() int {
		clear(w.header)
		w.status = 0
		h.ServeHTTP(w, r)
		return w.status
	}
}

// discard is a ResponseWriter that costs nothing itself.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
