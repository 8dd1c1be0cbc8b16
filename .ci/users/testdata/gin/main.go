package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"
)

func main() {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	// limiter
	r.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello") })
	for range 4 {
		answer := httptest.NewRecorder()
		r.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(answer.Code)
	}
}
