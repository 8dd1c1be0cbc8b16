package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v5"
)

func main() {
	e := echo.New()
	// limiter
	e.GET("/", func(c *echo.Context) error { return c.String(http.StatusOK, "hello") })
	server := httptest.NewServer(e)
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
