package echolimit

import (
	"cmp"
	"context"
	"net/url"
	"strings"

	"github.com/labstack/echo/v5"

	"github.com/sashlimit/sash/core/adapter"
)

// request shows an *echo.Context to core.
type request struct{ c *echo.Context }

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
	if segments := endsInParam(q.c.Path()); segments > 0 {
		if t.RawPath != "" { // a router with UseEscapedPathForMatching reads the decoded path
			t.Routed = joinFrom(segments, "", &url.URL{Path: t.Path})
		}
		t.RawPath = joinFrom(segments, t.RawPath, q.c.Request().URL)
	}
	return t
}

// endsInParam returns the number of segments of a route such as /users/:id, and 0 for other routes.
func endsInParam(route string) int {
	last := strings.LastIndexByte(route, '/') + 1
	if last == 0 || !strings.HasPrefix(route[last:], ":") {
		return 0
	}
	return strings.Count(route, "/")
}

// joinFrom returns the path as it was sent, raw or the encoded one, with slashes encoded from a segment on. A parameter
// at the end of a route has the rest of the path in echo, so that /users/:id serves /users/7/x as well.
func joinFrom(segment int, raw string, u *url.URL) string {
	if raw == "" && strings.Count(u.Path, "/") <= segment {
		return ""
	}
	sent := cmp.Or(raw, u.EscapedPath())
	for i := range len(sent) {
		if sent[i] != '/' {
			continue
		}
		if segment--; segment < 0 {
			return sent[:i] + strings.ReplaceAll(sent[i:], "/", "%2F")
		}
	}
	return raw
}
