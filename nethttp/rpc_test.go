package nethttp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
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

// A call that can never pass is not tried again. When a call ends nobody knows, so clients choose the wait.
func TestCallsWithoutWait(t *testing.T) {
	cost := func(r *http.Request) int { return len(r.Header["Unit"]) + 1 }
	for _, test := range []struct {
		desc     string
		policy   core.Policy
		opts     []core.Option
		pushback string
		message  string
	}{
		{"never", core.PerMinute(2), []core.Option{core.WithCost(cost)}, "-1",
			"Quota Exceeded: This request costs more than the whole quota, so it can never pass."},
		{"in flight", core.InFlight(1), nil, "", "Quota Exceeded: Try again when another request has ended."},
	} {
		var inner *httptest.ResponseRecorder
		var h http.Handler
		costly := func(r *http.Request) {
			call(r)
			r.Header["Unit"] = []string{"", ""}
		}
		h = nethttp.New(test.policy, core.Global(), test.opts...)(http.HandlerFunc(
			func(http.ResponseWriter, *http.Request) { inner = get(h, costly) }))
		get(h, call)
		header := inner.Header()
		if header.Get("Grpc-Status") != "8" || header.Get("Grpc-Message") != test.message ||
			header.Get("Grpc-Retry-Pushback-Ms") != test.pushback ||
			header.Get("Grpc-Status-Details-Bin") != "" || header.Get("Retry-After") != "" {
			t.Errorf("%s: header %v", test.desc, header)
		}
	}
}
