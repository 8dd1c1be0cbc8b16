// Tokens is a gateway to language models. It limits requests, requests in flight and tokens, of each customer and of
// each model, in one decision. It reserves what an answer may take, and gives back what it did not take. With REDIS_URL
// set, several of it share what they have counted.
package main

import (
	"cmp"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/examples/internal/redisurl"
)

// customers are those of each API key.
var customers = map[string]customer{"key-1": {name: "ann"}, "key-2": {name: "bob", pooled: true}}

const hint = `http://%[1]s has the models small and large.

Send this twice: r of 1000-tokens-per-minute is 695, then 685, since 305 are reserved at first, and the answer uses 10.
The long prompt uses 1000, so after it key-1 gets 429 for a minute, and key-2 tokens of the pool.

  curl -i -H 'X-API-Key: key-1' -d 'what is a sash window?' http://%[1]s/small
  curl -i -H 'X-API-Key: key-1' -d "$(yes so | head -n 500)" http://%[1]s/small
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
	limiter, err := core.New(core.LimitBy(limits), core.ByText(), core.WithName("tokens"), core.WithStore(store))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf(hint, listener.Addr())
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{model}", generate(limiter, stream))
	server := &http.Server{Handler: mux, ReadTimeout: 5 * time.Second}
	log.Fatal(server.Serve(listener))
}

// stream stands in for a model: it writes an answer in parts, and returns how many tokens it took.
func stream(prompt string, write func(text string)) (tokens int) {
	for word := range strings.FieldsSeq(prompt) {
		write(strings.ToUpper(word) + " ")
		tokens += 2 // one of the prompt, and one of the answer
	}
	return tokens
}
