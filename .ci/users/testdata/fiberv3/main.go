package main

import (
	"fmt"
	"log"
	"net"
	"net/http"

	"github.com/gofiber/fiber/v3"
)

func main() {
	app := fiber.New()
	// limiter
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("hello") })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true})
	for range 4 {
		answer, err := http.Get("http://" + listener.Addr().String())
		if err != nil {
			log.Fatal(err)
		}
		answer.Body.Close()
		fmt.Println(answer.StatusCode)
	}
}
