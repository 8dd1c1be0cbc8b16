package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/go-chi/chi/v5"
)

func main() {
	r := chi.NewRouter()
	// limiter
	r.Get("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	server := httptest.NewServer(r)
	defer server.Close()
	for range 4 {
		answer, err := http.Get(server.URL)
		if err != nil {
			log.Fatal(err)
		}
		answer.Body.Close()
		fmt.Println(answer.StatusCode)
	}
}
