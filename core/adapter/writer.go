package adapter

import (
	"bufio"
	"net"
	"net/http"
)

// Refuse is for adapters on net/http: it answers with status unless the handler writes another one.
func Refuse(w http.ResponseWriter, status int, answer func(http.ResponseWriter)) {
	r := &refusal{ResponseWriter: w, status: status}
	answer(r)
	r.begin()
}

type refusal struct {
	http.ResponseWriter
	status int // to be written, unless it is zero
}

func (r *refusal) WriteHeader(status int) {
	if status >= http.StatusOK { // not 103, say
		r.status = 0
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *refusal) Write(b []byte) (int, error) {
	r.begin()
	return r.ResponseWriter.Write(b)
}

// FlushError is what http.ResponseController calls: without it, a flush would write status 200.
func (r *refusal) FlushError() error {
	r.begin()
	return http.NewResponseController(r.ResponseWriter).Flush()
}

// Hijack is what http.ResponseController calls as well: a connection that was taken over gets no status.
func (r *refusal) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil {
		r.status = 0
	}
	return c, rw, err
}

func (r *refusal) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *refusal) begin() {
	if r.status != 0 {
		r.WriteHeader(r.status)
	}
}

// Upgrade returns w with a method Hijack that sets status 101 of r. It is for adapters on net/http, and requests with a
// field Upgrade. Hooks of w's own methods are not enough there: [http.ResponseController] skips a writer without Hijack
// and uses the one that it wraps. The result is an [http.Flusher] if w is, and has no other optional interface. A
// writer that cannot be hijacked is returned unchanged.
func (r *Response) Upgrade(w http.ResponseWriter) http.ResponseWriter {
	if !canHijack(w) {
		return w
	}
	u := upgrade{w, r}
	if f, ok := w.(http.Flusher); ok {
		return struct {
			upgrade
			http.Flusher
		}{u, f}
	}
	return u
}

func canHijack(w http.ResponseWriter) bool {
	if _, ok := w.(http.Hijacker); ok {
		return true
	}
	u, ok := w.(interface{ Unwrap() http.ResponseWriter })
	return ok && canHijack(u.Unwrap())
}

type upgrade struct {
	http.ResponseWriter

	seen *Response
}

func (u upgrade) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(u.ResponseWriter).Hijack()
	if err == nil {
		u.seen.Sent(http.StatusSwitchingProtocols)
	}
	return c, rw, err
}

func (u upgrade) Unwrap() http.ResponseWriter { return u.ResponseWriter }
