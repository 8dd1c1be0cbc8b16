package fiberlimit

import (
	"cmp"
	"context"

	"github.com/gofiber/fiber/v2"

	"github.com/sashlimit/sash/core"
)

// request shows a *fiber.Ctx to core.
type request struct{ c *fiber.Ctx }

func (q request) Context() context.Context { return q.c.UserContext() }
func (q request) Peer() core.Peer          { return core.PeerAddr(q.c.Context().RemoteAddr()) }
func (q request) Value(key any) any        { return cmp.Or(q.c.Locals(key), q.Context().Value(key)) }
func (q request) Native() any              { return q.c }
func (q request) Gone() bool               { return false } // fasthttp does not look while a handler runs
func (q request) Header(name string) (values []string) {
	for _, line := range q.c.Request().Header.PeekAll(name) {
		values = append(values, string(line))
	}
	return values
}
