package echolimit

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/sashlimit/sash/core"
)

// serve runs the handler. The status of an error is known when the error handler writes it.
func serve(next echo.HandlerFunc, c echo.Context, d core.Decision) (err error) {
	if ctx, asked := d.Context(c.Request().Context()); asked {
		c.SetRequest(c.Request().WithContext(ctx))
	}
	seen := d.Response()
	if seen == nil {
		d.Serve(func() int { err = next(c); return 0 })
		return err
	}
	response := c.Response()
	if c.Request().Header.Get("Upgrade") != "" { // echo's response does not tell when it is hijacked
		w := response.Writer
		response.Writer = seen.Upgrade(w)
		defer func() { response.Writer = w }()
	}
	serving := true
	response.Before(func() {
		if serving {
			seen.Sent(response.Status)
		}
	})
	d.Serve(func() int {
		err = next(c)
		serving = false
		r := c.Response() // a handler may have put another one in its place
		switch {
		case r.Committed && r.Status >= http.StatusOK: // after a 103 echo sends no other, and net/http sends 200
			return r.Status
		case err != nil && !r.Committed:
			r.Before(func() { seen.Sent(r.Status) }) // only now, so that the inner limiter asks first
			return 0
		}
		return http.StatusOK
	})
	return err
}
