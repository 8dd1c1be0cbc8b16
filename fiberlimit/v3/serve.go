package fiberlimit

import (
	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/fasthttpadapter"
)

// serve tells d the status. That of an error is known when the app's error handler has answered it.
func serve(c fiber.Ctx, d core.Decision) (err error) {
	if ctx, asked := d.Context(c.Context()); asked {
		c.SetContext(ctx)
	}
	d.Serve(func() int {
		defer func() { // of a panic, too: fasthttp goes on with what the handler has begun
			if timedOut(c) == nil && (c.Response().IsBodyStream() || c.RequestCtx().Hijacked()) {
				fasthttpadapter.ReleaseAtEnd(c.RequestCtx(), d.Deferred())
			}
		}()
		err = c.Next()
		if answer := timedOut(c); answer != nil {
			return answer.StatusCode()
		}
		if err != nil && d.Response() != nil {
			if err = c.App().ErrorHandler(c, err); err != nil { // as fiber does, which must not ask it again
				err = c.SendStatus(fiber.StatusInternalServerError)
			}
		}
		if status := c.Response().StatusCode(); status != fiber.StatusOK || !c.RequestCtx().Hijacked() {
			return status
		}
		return fiber.StatusSwitchingProtocols // which a handler that has taken over the connection may send itself
	})
	return err
}

// timedOut returns what fiber's Timeout has answered behind the limiter, or nil. The handler may then still use c.
func timedOut(c fiber.Ctx) *fasthttp.Response {
	if !c.IsAbandoned() {
		return nil
	}
	return c.RequestCtx().LastTimeoutErrorResponse()
}
