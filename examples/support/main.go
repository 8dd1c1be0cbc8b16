// Support gives one customer another quota for some days, as somebody who answers tickets does. With REDIS_URL set, it
// holds for all processes within a second, and until its end whether they are restarted or not.
package main

import (
	"cmp"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/examples/internal/redisurl"
	"github.com/sashlimit/sash/nethttp"
)

const hint = `Three requests a minute are allowed. Ann needs five until Friday; what she has used stays used:

  for i in 1 2 3 4; do curl -i -H 'X-Customer: ann' http://%[1]s; done
  curl -s -d 'customer=ann&limit=5/minute&for=72h&note=ticket+4711' http://%[2]s/overrides
  for i in 1 2 3; do curl -i -H 'X-Customer: ann' http://%[1]s; done
  curl -s http://%[2]s/overrides
`

func main() {
	store, err := redisurl.Store()
	if err != nil {
		log.Fatal(err)
	}
	// A gateway has verified the header.
	limiter, err := core.New(core.PerMinute(3), core.ByHeader("X-Customer", core.Unverified), core.WithStore(store),
		core.WithName("customers"), core.WithOverrides())
	if err != nil {
		log.Fatal(err)
	}
	public, err := net.Listen("tcp", "localhost:"+cmp.Or(os.Getenv("PORT"), "8080"))
	if err != nil {
		log.Fatal(err, "; set PORT to choose another one")
	}
	operators, err := net.Listen("tcp", "localhost:0") // which no customer may reach
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf(hint, public.Addr(), operators.Addr())
	go serve(operators, overrides(limiter))
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "Hello!") })
	serve(public, nethttp.From(limiter)(hello))
}

func serve(l net.Listener, h http.Handler) {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.Serve(l))
}
