// Nethttp serves with net/http: each client may send 3 requests in any 2 seconds.
package main

import (
	"cmp"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/nethttp"
)

func main() {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "Hello!\n") })

	handler := nethttp.New(core.Limit{Quota: 3, Window: 2 * time.Second}, core.ByIP())(mux)

	listener, err := net.Listen("tcp", "localhost:"+cmp.Or(os.Getenv("PORT"), "8080"))
	if err != nil {
		log.Fatal(err, "; set PORT to choose another one")
	}
	const hint = "http://%[1]s\n\nThe fourth of these gets 429:\n\n  for i in 1 2 3 4; do curl -i http://%[1]s; done\n"
	fmt.Printf(hint, listener.Addr())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.Serve(listener))
}
