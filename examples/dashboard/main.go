// Command dashboard shows limiters at work. "go run ./examples/dashboard" prints an address, where buttons start
// traffic that four algorithms decide about side by side, and below it the page of package dashboard.
package main

import (
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/sashlimit/sash/core/dashboard"
)

//go:embed page
var files embed.FS

func main() {
	var board dashboard.Board
	d, err := newDemo(board.Observe)
	if err != nil {
		log.Fatal(err)
	}
	for _, lane := range d.lanes {
		board.Add(lane.limiter)
	}
	host, port := cmp.Or(os.Getenv("HOST"), "127.0.0.1"), cmp.Or(os.Getenv("PORT"), "8080")
	listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://127.0.0.1:%d/\n", listener.Addr().(*net.TCPAddr).Port) //nolint:forcetypeassert // it is TCP
	handler := d.handler(&board)
	if os.Getenv("HOST") == "" {
		handler = onlyLocal(handler)
	}
	server := http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	server.RegisterOnShutdown(board.Close)
	log.Fatal(server.Serve(listener))
}

// onlyLocal answers requests to the names of this machine alone. Otherwise another site that a visitor of the page has
// open could give its own name the address 127.0.0.1, and then use the dashboard as if it were part of that site.
func onlyLocal(h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("127.0.0.1/", h)
	mux.Handle("localhost/", h)
	return mux
}

// handler serves the page with the buttons, and that of the board below /limits/. In a program of yours, let only
// administrators reach the latter.
func (d *demo) handler(board *dashboard.Board) http.Handler {
	mux := http.NewServeMux()
	page, err := fs.Sub(files, "page")
	if err != nil {
		log.Fatal(err) // it is embedded
	}
	mux.Handle("/", http.FileServerFS(page))
	mux.HandleFunc("POST /traffic/{kind}", func(w http.ResponseWriter, r *http.Request) {
		if !d.start(r.PathValue("kind")) {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	})
	mux.HandleFunc("GET /lanes", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(d.message()) //nolint:errcheck // the client has gone
	})
	everybody := func(*http.Request) bool { return true }
	mux.Handle("/limits/", dashboard.Handler(board, dashboard.WithIdentities(), dashboard.WithActions(everybody)))
	return mux
}
