package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"
)

func main() {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	// limiter
	r.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello") })
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
