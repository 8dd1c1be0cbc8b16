package echolimit

import (
	"cmp"
	"context"

	"github.com/labstack/echo/v4"

	"github.com/sashlimit/sash/core/adapter"
)

// request shows an echo.Context to core.
type request struct{ c echo.Context }

func (q request) Context() context.Context    { return q.c.Request().Context() }
func (q request) Peer() adapter.Peer          { return adapter.PeerOf(q.c.Request()) }
func (q request) Header(name string) []string { return q.c.Request().Header.Values(name) }
func (q request) Native() any                 { return q.c }
func (q request) Target() adapter.Target      { return adapter.TargetOf(q.c.Request()) }
func (q request) Value(key any) any {
	name, _ := key.(string)
	return cmp.Or(q.c.Get(name), q.c.Request().Context().Value(key))
}
