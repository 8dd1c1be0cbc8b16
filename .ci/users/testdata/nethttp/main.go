package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
)

func main() {
	var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	// limiter
	for range 4 {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(answer.Code)
	}
}
