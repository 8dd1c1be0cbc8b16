package echolimit

import (
	"bufio"
	"net"
	"net/http"

	"github.com/labstack/echo/v5"
)

// writer notes the status that a handler writes. It is used where outer middleware has a writer of its own: gzip's, and
// echo's for automatic HEAD, keep the status from echo's response until the handler and the limiter have ended.
type writer struct {
	http.ResponseWriter

	response *echo.Response // what the writer leads to, or nil if it does not show that
	unset    int            // without a response, the status of an answer whose handler sets none
	status   int            // what was written, or 0
	sent     func(int)      // hears of the status, if it is not nil
}

// watch returns a writer, which becomes the context's if that is not echo's response itself. restore puts back what
// was there.
func watch(c *echo.Context) (w *writer, restore func()) {
	before := c.Response()
	w = &writer{ResponseWriter: before, unset: http.StatusOK}
	w.response, _ = echo.UnwrapResponse(before)
	if before == http.ResponseWriter(w.response) {
		return w, func() {}
	}
	c.SetResponse(w)
	return w, func() {
		if c.Response() == http.ResponseWriter(w) { // a handler may have put another one in its place
			c.SetResponse(before)
		}
	}
}

// setStatus sets the status of an answer whose handler sets none.
func (w *writer) setStatus(status int) {
	w.unset = status
	if w.response != nil {
		w.response.Status = status
	}
}

// implicit returns the status of an answer whose handler sets none, which may have changed it.
func (w *writer) implicit() int {
	if w.response != nil && w.response.Status != 0 {
		return w.response.Status
	}
	return w.unset
}

// isWritten reports whether a handler has answered.
func isWritten(c *echo.Context) bool {
	if w, ok := c.Response().(*writer); ok && w.status != 0 {
		return true
	}
	r, _ := echo.UnwrapResponse(c.Response())
	return r != nil && r.Committed
}

// before calls f with the status of echo's response when that is about to be sent.
func (w *writer) before(f func(status int)) {
	if r := w.response; r != nil {
		r.Before(func() { f(r.Status) })
	}
}

// answered returns the status that a handler has answered with, and whether it has answered.
func (w *writer) answered(c *echo.Context) (status int, known bool) {
	if r, _ := echo.UnwrapResponse(c.Response()); r != nil {
		w.response = r // a handler may have put another one in its place
	}
	r := w.response
	committed := r != nil && r.Committed
	switch {
	case committed && r.Status < http.StatusOK: // after a 103 echo sends no other, and net/http sends 200
		return http.StatusOK, true
	case w.status != 0: // the response of an automatic HEAD is committed with another one
		return w.status, true
	case committed:
		return r.Status, true
	}
	return http.StatusOK, false
}

func (w *writer) WriteHeader(status int) {
	if w.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		w.status = status
		if w.sent != nil {
			w.sent(status)
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(w.implicit())
	}
	return w.ResponseWriter.Write(b)
}

// FlushError is what http.ResponseController calls.
func (w *writer) FlushError() error { return http.NewResponseController(w.ResponseWriter).Flush() }

// Flush and Hijack are for libraries that ask for http.Flusher and http.Hijacker. Echo's response has them, too.
func (w *writer) Flush() { w.FlushError() }

func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
