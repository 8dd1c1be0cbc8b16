package nethttp_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/nethttp"
)

func call(r *http.Request) {
	ann(r)
	r.Method = http.MethodPost
	r.Header.Set("Content-Type", "application/grpc")
}

// What a user writes is the answer to calls as well.
func TestHandlersAnswerCalls(t *testing.T) {
	h := nethttp.New(core.PerMinute(1), byUser,
		nethttp.WithDeny(func(w http.ResponseWriter, _ *http.Request, _ core.Decision) { io.WriteString(w, "denied") }),
		nethttp.WithError(func(w http.ResponseWriter, _ *http.Request, _ error) { io.WriteString(w, "failed") }))(ok)
	nobody := func(r *http.Request) {
		call(r)
		r.Header.Del("User")
	}
	get(h, call)
	if w := get(h, call); w.Code != 429 || w.Body.String() != "denied" || w.Header().Get("Grpc-Status") != "" {
		t.Errorf("status %d, body %q, header %v", w.Code, w.Body, w.Header())
	}
	if w := get(h, nobody); w.Code != 400 || w.Body.String() != "failed" || w.Header().Get("Grpc-Status") != "" {
		t.Errorf("status %d, body %q, header %v", w.Code, w.Body, w.Header())
	}
}
