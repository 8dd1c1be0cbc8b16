package ginlimit

import (
	"cmp"
	"context"

	"github.com/gin-gonic/gin"

	"github.com/sashlimit/sash/core/adapter"
)

// request shows a *gin.Context to core.
type request struct{ c *gin.Context }

func (q request) Context() context.Context { return q.c.Request.Context() }

func (q request) Peer() adapter.Peer { return adapter.PeerOf(q.c.Request) }

func (q request) Header(name string) []string { return q.c.Request.Header.Values(name) }

func (q request) Value(key any) any {
	return cmp.Or(q.c.Value(key), q.c.Request.Context().Value(key))
}

func (q request) Native() any { return q.c }

func (q request) SetContext(ctx context.Context) { q.c.Request = q.c.Request.WithContext(ctx) }

func (q request) Target() adapter.Target { return adapter.TargetOf(q.c.Request) }
