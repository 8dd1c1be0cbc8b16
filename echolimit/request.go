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
func (q request) Value(key any) any {
	name, _ := key.(string)
	return cmp.Or(q.c.Get(name), q.c.Request().Context().Value(key))
}

func (q request) SetContext(ctx context.Context) { q.c.SetRequest(q.c.Request().WithContext(ctx)) }

func (q request) Target() adapter.Target {
	t := adapter.TargetOf(q.c.Request())
	t.AnyEnd = q.c.Path() == "" // it has not been routed yet: RemoveTrailingSlash may follow
	t.RawPath = adapter.RestOfPath(q.c.Path(), t.RawPath, q.c.Request().URL)
	return t
}
