// Chi serves with chi v5: each client may send 3 requests in any 2 seconds.
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

	"github.com/go-chi/chi/v5"

	"github.com/sashlimit/sash/chilimit"
	"github.com/sashlimit/sash/core"
)

func main() {
	r := chi.NewRouter()
	r.Use(chilimit.New(core.Limit{Quota: 3, Window: 2 * time.Second}, core.ByIP()))
	r.Get("/", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "Hello!\n") })

	listener, err := net.Listen("tcp", "localhost:"+cmp.Or(os.Getenv("PORT"), "8080"))
	if err != nil {
		log.Fatal(err, "; set PORT to choose another one")
	}
	const hint = "http://%[1]s\n\nThe fourth of these gets 429:\n\n  for i in 1 2 3 4; do curl -i http://%[1]s; done\n"
	fmt.Printf(hint, listener.Addr())
	server := &http.Server{Handler: r, ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.Serve(listener))
}
