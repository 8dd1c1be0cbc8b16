package echolimit

import (
	"github.com/labstack/echo/v5"

	"github.com/sashlimit/sash/core"
)

// serve runs the handler. The status of an error is known when the error handler writes it.
func serve(next echo.HandlerFunc, c *echo.Context, d core.Decision) (err error) {
	if ctx, asked := d.Context(c.Request().Context()); asked {
		c.SetRequest(c.Request().WithContext(ctx))
	}
	seen := d.Response()
	if seen == nil {
		d.Serve(func() int { err = next(c); return 0 })
		return err
	}
	if c.Request().Header.Get("Upgrade") != "" { // a response does not tell when it is hijacked
		if r, _ := echo.UnwrapResponse(c.Response()); r != nil {
			w := r.ResponseWriter
			r.ResponseWriter = seen.Upgrade(w)
			defer func() { r.ResponseWriter = w }()
		}
	}
	w, restore := watch(c)
	if w.response == nil { // then the status of an error is that which the error handler writes to w
		w.sent, restore = seen.Sent, func() {}
	}
	defer restore()
	serving := true
	w.before(func(status int) {
		if serving {
			seen.Sent(status)
		}
	})
	d.Serve(func() int {
		err = next(c)
		serving = false
		status, known := w.answered(c)
		if known || err == nil {
			return status
		}
		w.before(seen.Sent) // only now, so that the inner limiter asks first
		return 0
	})
	return err
}
