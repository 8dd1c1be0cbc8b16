// Package recipes has what sash has no package for, to copy. README.md shows it; the tests run it.
package recipes

import (
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/labstack/echo/v5"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/nethttp"
)

func withEcho(e *echo.Echo) {
	e.Use(echo.WrapMiddleware(nethttp.New(core.PerMinute(100), core.ByIP())))
}

func withFiber(app *fiber.App) {
	app.Use(adaptor.HTTPMiddleware(nethttp.New(core.PerMinute(100), core.ByIP())))
}
