package ginlimit_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/ginlimit"
)

// The callback is asked once, about the status that the client gets. A panic counts as 500 and goes on to middleware
// that recovers from it.
func TestRefund(t *testing.T) {
	next := func(*gin.Context) {}
	sorry := gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(503) })
	answer := func(c *gin.Context) {
		if c.Next(); len(c.Errors) > 0 {
			c.String(409, "conflict")
		}
	}
	panics := func(*gin.Context) { panic("boom") }
	for _, c := range []struct {
		desc, path    string
		front, behind gin.HandlerFunc // of the limiter
		serve         gin.HandlerFunc
		status, asked int
		body          string
	}{
		{"an error", "/", next, next, func(c *gin.Context) {
			c.AbortWithError(409, errors.New("a conflict"))
		}, 409, 409, ""},
		{"an error that middleware answers", "/", next, answer, func(c *gin.Context) {
			c.Error(errors.New("a conflict"))
		}, 409, 409, "conflict"},
		{"the last status before the body", "/", next, next, func(c *gin.Context) {
			c.Status(500)
			c.String(201, "made")
		}, 201, 201, "made"},
		{"early hints, which gin keeps as the status", "/", next, next, func(c *gin.Context) {
			c.Status(http.StatusEarlyHints)
			c.Writer.WriteHeaderNow()
			c.String(200, "served")
		}, 200, 200, "served"},
		{"no route", "/nowhere", next, next, next, 404, 404, "404 page not found"},
		{"no method", "/post", next, next, next, 405, 405, "405 method not allowed"},
		{"a panic", "/", sorry, next, panics, 503, 500, ""},
		{"a panic and gin.Recovery", "/", gin.RecoveryWithWriter(io.Discard), next, panics, 500, 500, ""},
	} {
		t.Run(c.desc, func(t *testing.T) {
			var asked []int
			l, err := core.New(core.PerMinute(9), core.ByIP(), core.WithRefund(func(c *gin.Context, status int) bool {
				asked = append(asked, status)
				return c.GetHeader("Back") != ""
			}))
			if err != nil {
				t.Fatal(err)
			}
			r := gin.New()
			r.HandleMethodNotAllowed = true
			r.Use(c.front, ginlimit.From(l), c.behind)
			r.GET("/", c.serve)
			r.POST("/post", next)
			send := coretest.HTTP1(t, r)
			for i, back := range []string{"1", ""} {
				asked = nil
				q := httptest.NewRequest(http.MethodGet, c.path, nil)
				q.Header.Set("Back", back)
				w := send(q)
				if body, err := io.ReadAll(w.Body); w.StatusCode != c.status || string(body) != c.body || err != nil {
					t.Errorf("status %d, body %q, %v; want %d, %q", w.StatusCode, body, err, c.status, c.body)
				}
				if !slices.Equal(asked, []int{c.asked}) {
					t.Errorf("asked about %v, want %d once", asked, c.asked)
				}
				if d, err := l.Peek(t.Context(), "127.0.0.1"); err != nil || d.Used != i { // the first is given back
					t.Errorf("%d units used, %v; want %d", d.Used, err, i)
				}
			}
		})
	}
}
