package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
)

func main() {
	var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	// limiter
	server := httptest.NewServer(handler)
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
