package nethttp

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"

	"github.com/felixge/httpsnoop"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

// request shows an *http.Request to core.
type request struct{ r *http.Request }

func (q request) Context() context.Context    { return q.r.Context() }
func (q request) Peer() adapter.Peer          { return adapter.PeerOf(q.r) }
func (q request) Header(name string) []string { return q.r.Header.Values(name) }
func (q request) Value(key any) any           { return q.r.Context().Value(key) }
func (q request) Native() any                 { return q.r }
func (q request) Target() adapter.Target      { return adapter.TargetOf(q.r) }

// keeper is a request whose context can be replaced.
type keeper struct {
	adapter.Targeter // whose target the context does not change

	r *http.Request // the latest
}

func (k *keeper) Context() context.Context       { return k.r.Context() }
func (k *keeper) Native() any                    { return k.r }
func (k *keeper) SetContext(ctx context.Context) { k.r = k.r.WithContext(ctx) }

func answerDenied(w http.ResponseWriter, r *http.Request, d core.Decision) { write(w, r, d.Problem()) }
func answerError(w http.ResponseWriter, r *http.Request, err error)        { write(w, r, core.ProblemOf(err)) }

func write(w http.ResponseWriter, r *http.Request, p adapter.Problem) {
	if p.AnswerRPC(w, r) {
		return
	}
	p.SetHeaders(w.Header())
	w.WriteHeader(p.Status)
	w.Write(p.JSON())
}

// serve leaves the writer unchanged unless a callback needs the status. A CONNECT over HTTP/3, as of WebTransport,
// takes over its stream through a writer that can do more than httpsnoop knows of: its status is taken for 200.
func serve(next http.Handler, w http.ResponseWriter, r *http.Request, seen *adapter.Response) (status int) {
	if seen == nil {
		next.ServeHTTP(w, r)
		return 0
	}
	if r.Method == http.MethodConnect && r.ProtoMajor == 3 {
		next.ServeHTTP(w, r)
		seen.Sent(http.StatusOK) // although the client may have ended the stream since
		return http.StatusOK
	}
	return watch(w, seen, func(w http.ResponseWriter) {
		if _, ok := w.(http.Hijacker); !ok && r.Header.Get("Upgrade") != "" {
			w = seen.Upgrade(w)
		}
		next.ServeHTTP(w, r)
	})
}

// watch runs f and passes the status of its answer to seen. The writer that f gets has all abilities of w.
func watch(w http.ResponseWriter, seen *adapter.Response, f func(http.ResponseWriter)) int {
	status := 0
	// The first one is what the client gets, unless it only announces another.
	note := func(code int) {
		if status == 0 && (code >= http.StatusOK || code == http.StatusSwitchingProtocols) {
			status = code
		}
	}
	// The header goes out with the body: after a panic the server drops one that is written alone.
	sent := func(code int) {
		note(code)
		seen.Sent(status)
	}
	f(httpsnoop.Wrap(w, httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(code int) {
				note(code)
				next(code)
			}
		},
		Write: func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) {
				if note(http.StatusOK); len(b) > 0 {
					sent(http.StatusOK)
				}
				return next(b)
			}
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() {
				sent(http.StatusOK)
				next()
			}
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(src io.Reader) (n int64, err error) {
				failed := false
				defer func() {
					if n > 0 || !failed { // else nothing has been sent
						sent(http.StatusOK)
					}
				}()
				n, err = next(src)
				failed = n == 0
				return n, err
			}
		},
		Hijack: func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) {
				c, rw, err := next()
				if err == nil {
					sent(http.StatusSwitchingProtocols)
				}
				return c, rw, err
			}
		},
	}))
	if status == 0 {
		return http.StatusOK
	}
	seen.Sent(status)
	return status
}
