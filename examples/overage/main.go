// Overage serves customers of two plans. The free one ends at its quota. Requests above the quota of the paid one are
// served as well, and counted apart, to be billed. With REDIS_URL set, several of it share what they have counted.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/examples/internal/redisurl"
)

const hint = `Ann is on the free plan of 3 requests a month, and bob on the paid one of 5, with 4 more to be billed:

  for i in 1 2 3 4; do curl -i -H 'X-API-Key: key-1' http://%[1]s; done
  for i in 1 2 3 4 5 6 7 8 9 10; do curl -i -H 'X-API-Key: key-2' http://%[1]s; done
`

func main() {
	store, err := redisurl.Store()
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "localhost:"+cmp.Or(os.Getenv("PORT"), "8080"))
	if err != nil {
		log.Fatal(err, "; set PORT to choose another one")
	}
	m, err := newMeter(store)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf(hint, listener.Addr())
	server := &http.Server{Handler: http.HandlerFunc(m.serve), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.Serve(listener))
}

func (m *meter) serve(w http.ResponseWriter, r *http.Request) {
	c, ok := customers[r.Header.Get("X-API-Key")] // yours are in a database
	if !ok {
		http.Error(w, "no such API key", http.StatusUnauthorized)
		return
	}
	ctx := context.WithValue(r.Context(), planKey{}, c.plan)
	d, billed, err := m.allow(ctx, c)
	d.SetHeaders(w.Header())
	if err := cmp.Or(err, d.Err()); err != nil {
		p := core.ProblemOf(err)
		p.SetHeaders(w.Header())
		w.WriteHeader(p.Status)
		w.Write(p.JSON())
		return
	}
	if billed {
		w.Header().Set("X-Billed", strconv.Itoa(d.Used+1)) // requests of this month
	}
	fmt.Fprintln(w, "Hello!")
}
