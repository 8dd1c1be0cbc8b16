//go:build next

package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/sashlimit/sash/core/internal/next/core"
	"github.com/sashlimit/sash/core/internal/next/dashboard"
	"github.com/sashlimit/sash/nethttp"
)

// The page is mounted beside what it tells about. In a program of yours, let only administrators reach it.
func Example() {
	var board dashboard.Board
	limiter, err := core.New(core.PerMinute(100), core.ByIP(), core.WithName("api"), core.WithObserver(board.Observe))
	if err != nil {
		fmt.Println(err)
		return
	}
	board.Add(limiter)

	app := http.NewServeMux()
	app.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") })
	mux := http.NewServeMux()
	mux.Handle("/", nethttp.From(limiter)(app))
	mux.Handle("/limits/", dashboard.Handler(&board))

	server := httptest.NewServer(mux)
	defer server.Close()
	for _, path := range []string{"/", "/limits/"} {
		r, err := http.Get(server.URL + path)
		if err != nil {
			fmt.Println(err)
			return
		}
		r.Body.Close()
		fmt.Println(r.Status, r.Header.Get("Content-Type"))
	}
	// Output:
	// 200 OK text/plain; charset=utf-8
	// 200 OK text/html; charset=utf-8
}
