package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v4"
)

func main() {
	e := echo.New()
	// limiter
	e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "hello") })
	for range 4 {
		answer := httptest.NewRecorder()
		e.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(answer.Code)
	}
}
