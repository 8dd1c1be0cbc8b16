package fiberlimit

import (
	"github.com/gofiber/fiber/v2"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/fasthttpadapter"
)

// serve tells d the status. That of an error is known when the app's error handler has answered it.
func serve(c *fiber.Ctx, d core.Decision) (err error) {
	if ctx, asked := d.Context(c.UserContext()); asked {
		c.SetUserContext(ctx)
	}
	d.Serve(func() int {
		defer func() { // of a panic, too: fasthttp goes on with what the handler has begun
			if c.Response().IsBodyStream() || c.Context().Hijacked() {
				fasthttpadapter.ReleaseAtEnd(c.Context(), d.Deferred())
			}
		}()
		if err = c.Next(); err != nil && d.Response() != nil {
			if err = c.App().ErrorHandler(c, err); err != nil { // as fiber does, which must not ask it again
				err = c.SendStatus(fiber.StatusInternalServerError)
			}
		}
		if status := c.Response().StatusCode(); status != fiber.StatusOK || !c.Context().Hijacked() {
			return status
		}
		return fiber.StatusSwitchingProtocols // which a handler that has taken over the connection may send itself
	})
	return err
}
