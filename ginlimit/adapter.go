package ginlimit

import (
	"bufio"
	"cmp"
	"context"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

// request shows a *gin.Context to core.
type request struct{ c *gin.Context }

func (q request) Context() context.Context    { return q.c.Request.Context() }
func (q request) Peer() adapter.Peer          { return adapter.PeerOf(q.c.Request) }
func (q request) Header(name string) []string { return q.c.Request.Header.Values(name) }

func (q request) Value(key any) any {
	// Since gin 1.11, keys are of any type, but Value finds texts only.
	if c, ok := any(q.c).(interface{ Get(key any) (any, bool) }); ok {
		if v, _ := c.Get(key); v != nil {
			return v
		}
	}
	return cmp.Or(q.c.Value(key), q.c.Request.Context().Value(key))
}

func (q request) Native() any                    { return q.c }
func (q request) SetContext(ctx context.Context) { q.c.Request = q.c.Request.WithContext(ctx) }
func (q request) Target() adapter.Target         { return adapter.TargetOf(q.c.Request) }

func answerDenied(c *gin.Context, d core.Decision) { write(c, d.Problem()) }
func answerError(c *gin.Context, err error)        { write(c, core.ProblemOf(err)) }

func write(c *gin.Context, p adapter.Problem) {
	if p.AnswerRPC(c.Writer, c.Request) {
		return
	}
	p.SetHeaders(c.Writer.Header())
	c.Data(p.Status, adapter.ProblemType, p.JSON())
}

// refuse answers with status unless the handler writes another one. The handlers behind it do not run, even if
// answer calls c.Next, or panics and middleware recovers that.
func refuse(c *gin.Context, status int, answer func()) {
	c.Abort()
	c.Status(status)
	answer()
	c.Writer.WriteHeaderNow()
}

// serve runs the handlers behind the limiter. gin's writer does not report when the header goes out. So if a client has
// left when the handlers end, and the status is 500 or above, it counts as having left before the response.
func serve(c *gin.Context, d *core.Decision) {
	if ctx, asked := d.Context(c.Request.Context()); asked {
		c.Request = c.Request.WithContext(ctx)
	}
	seen := d.Response()
	if seen == nil {
		d.Serve(func() int { c.Next(); return 0 })
		return
	}
	w := c.Writer
	if c.GetHeader("Upgrade") != "" {
		c.Writer = upgrades{w, seen}
		defer func() { c.Writer = w }()
	}
	status := func() int {
		if s := w.Status(); s >= http.StatusOK || s == http.StatusSwitchingProtocols {
			return s
		}
		return http.StatusOK // after a 103 gin sends no other, and net/http sends 200
	}
	d.Serve(func() int {
		defer func() { // of a panic, too
			if w.Written() {
				seen.Sent(status())
			}
		}()
		c.Next()
		return status()
	})
}

// upgrades reports to seen that the handler takes over the connection, for which gin's writer has status 200.
type upgrades struct {
	gin.ResponseWriter

	seen *adapter.Response
}

func (u upgrades) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(u.seen.Upgrade(u.ResponseWriter)).Hijack()
}

func (u upgrades) Unwrap() http.ResponseWriter { return u.ResponseWriter }
