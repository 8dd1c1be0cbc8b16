package fiberlimit

import (
	"cmp"
	"context"
	"reflect"

	"github.com/gofiber/fiber/v2"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/fasthttpadapter"
)

// request shows a *fiber.Ctx to core.
type request struct{ c *fiber.Ctx }

func (q request) Context() context.Context { return q.c.UserContext() }
func (q request) Peer() adapter.Peer       { return fasthttpadapter.PeerOf(q.c.Context(), fiberPath) }
func (q request) Value(key any) any        { return cmp.Or(q.c.Locals(key), q.Context().Value(key)) }
func (q request) Native() any              { return q.c }
func (q request) Gone() bool               { return false } // fasthttp does not look while a handler runs

func (q request) Header(name string) []string { return fasthttpadapter.HeaderOf(q.c.Context(), name) }

func (q request) SetContext(ctx context.Context) { q.c.SetUserContext(ctx) }

// Target returns texts in the request's memory.
func (q request) Target() adapter.Target {
	config := q.c.App().Config()
	t := fasthttpadapter.TargetOf(q.c.Context())
	t.Method, t.AnyCase, t.AnySlash = q.c.Method(), !config.CaseSensitive, !config.StrictRouting
	return t
}

var fiberPath = reflect.TypeFor[fiber.App]().PkgPath()
