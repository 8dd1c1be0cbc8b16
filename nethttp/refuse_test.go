package nethttp_test

import (
	"net/http"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/nethttp"
)

// A panic in a handler of refusals is passed on to the middleware that recovers from it.
func TestRefusalPanics(t *testing.T) {
	for _, value := range []any{"boom", http.ErrAbortHandler} {
		boom := func() { panic(value) }
		h := nethttp.New(core.PerMinute(1), byUser,
			nethttp.WithDeny(func(http.ResponseWriter, *http.Request, core.Decision) { boom() }),
			nethttp.WithError(func(http.ResponseWriter, *http.Request, error) { boom() }))(ok)
		get(h, ann)
		for _, change := range []func(*http.Request){ann, func(*http.Request) {}} {
			func() {
				defer func() {
					if p := recover(); p != value {
						t.Errorf("recovered %v, want %v", p, value)
					}
				}()
				get(h, change)
			}()
		}
	}
}
