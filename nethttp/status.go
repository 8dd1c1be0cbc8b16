package nethttp

import (
	"io"
	"net/http"

	"github.com/felixge/httpsnoop"
)

// statusOf is the status with which f answers. The writer that f gets can do whatever w can.
func statusOf(w http.ResponseWriter, f func(http.ResponseWriter)) (status int) {
	// The first one is what the client gets, unless it only announces another.
	note := func(code int) {
		if status == 0 && (code >= http.StatusOK || code == http.StatusSwitchingProtocols) {
			status = code
		}
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
				note(http.StatusOK)
				return next(b)
			}
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() {
				note(http.StatusOK)
				next()
			}
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(src io.Reader) (int64, error) {
				n, err := next(src)
				if n > 0 { // else nothing has been sent
					note(http.StatusOK)
				}
				return n, err
			}
		},
	}))
	note(http.StatusOK)
	return status
}
