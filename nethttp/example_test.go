package nethttp_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/nethttp"
)

func ExampleNew() {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "Hello!") })

	handler := nethttp.New(core.PerHour(2), core.ByIP())(mux) // and http.ListenAndServe(":8080", handler)

	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"), w.Header().Get("Content-Type"))
	}
	// Output:
	// 200 "2-per-hour";q=2;w=3600 text/plain; charset=utf-8
	// 200 "2-per-hour";q=2;w=3600 text/plain; charset=utf-8
	// 429 "2-per-hour";q=2;w=3600 application/problem+json
}

// Retry-After and the RateLimit fields are set already, and so is the status.
func ExampleWithDeny() {
	limit := nethttp.New(core.PerHour(1), core.ByIP(),
		nethttp.WithDeny(func(w http.ResponseWriter, _ *http.Request, d core.Decision) {
			fmt.Fprintf(w, "slow down: %s", d.Violated[0])
		}))
	handler := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "Hello!") }))

	for range 2 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code, w.Body, w.Header().Get("Retry-After") != "")
	}
	// Output:
	// 200 Hello! false
	// 429 slow down: 1-per-hour true
}
