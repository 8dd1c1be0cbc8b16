package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/gofiber/fiber/v3"
)

func main() {
	app := fiber.New()
	// limiter
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("hello") })
	for range 4 {
		answer, err := app.Test(httptest.NewRequest(http.MethodGet, "/", nil))
		if err != nil {
			log.Fatal(err)
		}
		answer.Body.Close()
		fmt.Println(answer.StatusCode)
	}
}
