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
		log.Fatal(err, "; set PORT to choose another one")
	}
	const hint = "http://%[1]s\n\nThe fourth of these gets 429:\n\n  for i in 1 2 3 4; do curl -i http://%[1]s; done\n"
	fmt.Printf(hint, listener.Addr())
	log.Fatal(app.Listener(listener))
}
