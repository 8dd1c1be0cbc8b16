// Tokens lets each customer use 1000 tokens of a language model in any minute.
// What an answer may take is reserved, and what it did not take is given back.
package main

import (
	"cmp"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/sashlimit/sash/core"
)

var customers = map[string]string{"key-1": "ann", "key-2": "bob"} // by API key

const longest = 300 // tokens of an answer

const hint = `http://%[1]s

Send this twice: r in RateLimit is 695, then 685, since 305 are reserved at first, and the answer uses 10.
The long prompt uses 1000, so after it key-1 gets 429 for a minute. There is a key-2 as well.

  curl -i -H 'X-API-Key: key-1' -d 'what is a sash window?' http://%[1]s
  curl -i -H 'X-API-Key: key-1' -d "$(yes so | head -n 500)" http://%[1]s
`

func main() {
	listener, err := net.Listen("tcp", "localhost:"+cmp.Or(os.Getenv("PORT"), "8080"))
	if err != nil {
		log.Fatal(err, "; set PORT to choose another one")
	}
	limiter, err := core.New(core.PerMinute(1000), core.Global(), core.WithName("tokens"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf(hint, listener.Addr())
	server := &http.Server{Handler: generate(limiter, model), ReadTimeout: 5 * time.Second}
	log.Fatal(server.Serve(listener))
}

func generate(limiter *core.Limiter, model func(prompt string) (answer string, tokens int)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		customer, ok := customers[r.Header.Get("X-API-Key")]
		if !ok {
			http.Error(w, "no such API key", http.StatusUnauthorized)
			return
		}
		prompt, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 8<<10))
		if err != nil {
			http.Error(w, "the prompt is too long", http.StatusRequestEntityTooLarge)
			return
		}
		d, err := limiter.AllowN(r.Context(), customer, len(prompt)/4+longest)
		d.SetHeaders(w.Header())
		if err := cmp.Or(err, d.Err()); err != nil {
			p := core.ProblemOf(err)
			p.SetHeaders(w.Header())
			w.WriteHeader(p.Status)
			w.Write(p.JSON())
			return
		}
		answer, tokens := model(string(prompt))
		if err := d.Settle(r.Context(), tokens); err != nil {
			log.Print(err) // all that was reserved stays so
		}
		fmt.Fprintf(w, "%s\n(%d tokens)\n", answer, tokens)
	}
}

// model stands in for yours.
func model(prompt string) (answer string, tokens int) {
	return strings.ToUpper(prompt), 2 * len(strings.Fields(prompt))
}
