// Fiber serves with fiber v2: each client may send 3 requests in any 2 seconds.
package main

import (
	"cmp"
	"fmt"
	"log"
	"net"
	"os"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/fiberlimit"
)

func main() {
	app := fiber.New(fiber.Config{DisableStartupMessage: true, ReadTimeout: 5 * time.Second})
	app.Use(fiberlimit.New(core.Limit{Quota: 3, Window: 2 * time.Second}, core.ByIP()))
	app.Get("/", func(c *fiber.Ctx) error { return c.SendString("Hello!\n") })

	listener, err := net.Listen("tcp", "localhost:"+cmp.Or(os.Getenv("PORT"), "8080"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s\n", listener.Addr())
	log.Fatal(app.Listener(listener))
}
