// Llm is a gateway to a language model for customers with plans: requests and tokens a minute, four requests at a time,
// and tokens a month in the customer's time zone. Plan and zone are claims of a token. Operators have a page of their
// own, on which they give a customer another quota. With REDIS_URL set, several of it share what they have counted.
package main

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/dashboard"
	"github.com/sashlimit/sash/examples/internal/redisurl"
	"github.com/sashlimit/sash/nethttp"
)

var secret = []byte(rand.Text() + rand.Text()) // yours comes from your identity provider

const hint = `Ann has 1000 tokens a minute. A request reserves 301 and more, and gets back what it did not use.
Without a token the answer is 401. On http://%[2]s/limits/ operators give her another quota.

  curl -i -H 'Authorization: Bearer %[3]s' -d 'what is a sash window?' http://%[1]s/chat
  curl -i -d 'what is a sash window?' http://%[1]s/chat
`

func main() {
	store, err := redisurl.Store()
	if err != nil {
		log.Fatal(err)
	}
	board := new(dashboard.Board)
	limiter, err := newLimiter(store, core.WithObserver(board.Observe))
	if err != nil {
		log.Fatal(err)
	}
	board.Add(limiter)
	public, err := net.Listen("tcp", "localhost:"+cmp.Or(os.Getenv("PORT"), "8080"))
	if err != nil {
		log.Fatal(err, "; set PORT to choose another one")
	}
	operators, err := net.Listen("tcp", "localhost:0") // which no customer may reach
	if err != nil {
		log.Fatal(err)
	}
	claims := jwt.MapClaims{
		"sub": "ann", "plan": "pro", "zone": "America/New_York", "exp": time.Now().Add(time.Hour).Unix(),
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf(hint, public.Addr(), operators.Addr(), token)
	page := dashboard.Handler(board, dashboard.WithIdentities(), dashboard.WithActions(isOperator))
	go serve(operators, page)
	mux := http.NewServeMux()
	mux.Handle("POST /chat", read(nethttp.From(limiter)(chat(stream))))
	serve(public, mux)
}

func isOperator(*http.Request) bool { return true } // yours asks who is logged in

func serve(l net.Listener, h http.Handler) {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.Serve(l))
}
