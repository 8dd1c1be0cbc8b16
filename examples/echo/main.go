// Echo serves with echo v4: each client may send 3 requests in any 2 seconds.
package main

import (
	"cmp"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/echolimit"
)

func main() {
	e := echo.New()
	e.Use(echolimit.New(core.Limit{Quota: 3, Window: 2 * time.Second}, core.ByIP()))
	e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "Hello!\n") })

	listener, err := net.Listen("tcp", "localhost:"+cmp.Or(os.Getenv("PORT"), "8080"))
	if err != nil {
		log.Fatal(err, "; set PORT to choose another one")
	}
	const hint = "http://%[1]s\n\nThe fourth of these gets 429:\n\n  for i in 1 2 3 4; do curl -i http://%[1]s; done\n"
	fmt.Printf(hint, listener.Addr())
	e.Listener, e.HideBanner, e.HidePort = listener, true, true
	e.Server.ReadHeaderTimeout = 5 * time.Second
	log.Fatal(e.Start(""))
}
