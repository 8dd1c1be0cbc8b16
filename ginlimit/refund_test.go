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
	"github.com/sashlimit/sash/ginlimit"
)

func newLimiter(t *testing.T, opts ...core.Option) *core.Limiter {
	t.Helper()
	l, err := core.New(core.PerMinute(9), core.ByHeader("User", core.Unverified), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func used(t *testing.T, l *core.Limiter) int {
	t.Helper()
	d, err := l.Peek(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	return d.Used
}

// The callback is asked once, about the status that the client gets.
func TestRefund(t *testing.T) {
	for _, c := range []struct {
		desc    string
		handler gin.HandlerFunc
		status  int
		body    string
	}{
		{"nothing", func(*gin.Context) {}, 200, ""},
		{"a body", func(c *gin.Context) { c.String(200, "served") }, 200, "served"},
		{"404", func(c *gin.Context) { c.AbortWithStatus(404) }, 404, ""},
		{"an error", func(c *gin.Context) { c.AbortWithError(409, errors.New("a conflict")) }, 409, ""},
		{"the last status before the body", func(c *gin.Context) { c.Status(500); c.String(201, "made") }, 201, "made"},
		{"a status too late", func(c *gin.Context) { c.String(200, "served"); c.Status(500) }, 200, "served"},
		{"flushed", func(c *gin.Context) { c.Writer.Flush(); c.Status(500) }, 200, ""},
	} {
		t.Run(c.desc, func(t *testing.T) {
			var asked []int
			l := newLimiter(t, core.WithRefund(func(c *gin.Context, status int) bool {
				asked = append(asked, status)
				return c.GetHeader("Back") != ""
			}))
			r := gin.New()
			r.Use(ginlimit.From(l))
			r.GET("/", c.handler)
			for i, header := range [][]string{{"User", "ann", "Back", "1"}, {"User", "ann"}} {
				asked = nil
				w := get(r, "/", header...)
				if w.Code != c.status || w.Body.String() != c.body {
					t.Errorf("status %d, body %q; want %d, %q", w.Code, w.Body, c.status, c.body)
				}
				if !slices.Equal(asked, []int{c.status}) {
					t.Errorf("asked about %v, want %d once", asked, c.status)
				}
				if n := used(t, l); n != i { // the first is given back, the second is not
					t.Errorf("%d units used, want %d", n, i)
				}
			}
		})
	}
}

// gin keeps the 103 of early hints as the status, but the client gets another one.
func TestRefundEarlyHints(t *testing.T) {
	asked := make(chan int, 9)
	r := gin.New()
	r.Use(ginlimit.New(core.PerMinute(9), core.ByIP(),
		core.WithRefund(func(_ *gin.Context, status int) bool { asked <- status; return false })))
	r.GET("/", func(c *gin.Context) {
		c.Status(http.StatusEarlyHints)
		c.Writer.WriteHeaderNow()
		c.String(http.StatusOK, "served")
	})
	server := httptest.NewServer(r)
	defer server.Close()
	response, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if got := <-asked; response.StatusCode != 200 || got != 200 {
		t.Errorf("status %d, asked about %d; want 200", response.StatusCode, got)
	}
}

// A request that matches no route is refunded too, by the status that gin gives it.
func TestRefundNoRoute(t *testing.T) {
	var asked []int
	r := gin.New()
	r.HandleMethodNotAllowed = true
	refund := core.WithRefund(func(_ *gin.Context, status int) bool { asked = append(asked, status); return true })
	r.Use(ginlimit.New(core.PerMinute(9), core.ByIP(), refund))
	r.POST("/post", func(*gin.Context) {})
	for path, want := range map[string]int{"/nowhere": 404, "/post": 405} {
		asked = nil
		if w := get(r, path); w.Code != want || !slices.Equal(asked, []int{want}) {
			t.Errorf("%s: status %d, asked about %v; want %d", path, w.Code, asked, want)
		}
	}
}

// The status of an error that middleware behind the limiter answers is the one that counts.
func TestRefundErrorMiddleware(t *testing.T) {
	asked := 0
	r := gin.New()
	refund := core.WithRefund(func(_ *gin.Context, status int) bool { asked = status; return true })
	r.Use(ginlimit.New(core.PerMinute(9), core.ByIP(), refund))
	r.Use(func(c *gin.Context) {
		if c.Next(); len(c.Errors) > 0 {
			c.String(409, "conflict")
		}
	})
	r.GET("/", func(c *gin.Context) { c.Error(errors.New("a conflict")) })
	if w := get(r, "/"); w.Code != 409 || asked != 409 {
		t.Errorf("status %d, asked about %d", w.Code, asked)
	}
}

// A panic counts as 500 and is passed on to the middleware that recovers from it.
func TestRefundPanic(t *testing.T) {
	quiet := gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(503) })
	for _, c := range []struct {
		desc   string
		use    func(limit gin.HandlerFunc) []gin.HandlerFunc
		asked  int
		status int
	}{
		{"caught outside", func(limit gin.HandlerFunc) []gin.HandlerFunc {
			return []gin.HandlerFunc{quiet, limit}
		}, 500, 503},
		{"gin.Recovery", func(limit gin.HandlerFunc) []gin.HandlerFunc {
			return []gin.HandlerFunc{gin.RecoveryWithWriter(io.Discard), limit}
		}, 500, 500},
	} {
		var asked []int
		l := newLimiter(t, core.WithRefund(func(_ *gin.Context, status int) bool {
			asked = append(asked, status)
			return len(asked) == 1
		}))
		r := gin.New()
		r.Use(c.use(ginlimit.From(l))...)
		r.GET("/", func(*gin.Context) { panic("boom") })
		for i := range 2 {
			if w := get(r, "/", "User", "ann"); w.Code != c.status {
				t.Errorf("%s: status %d, want %d", c.desc, w.Code, c.status)
			}
			if n := used(t, l); n != i {
				t.Errorf("%s: %d units used, want %d", c.desc, n, i)
			}
		}
		if !slices.Equal(asked, []int{c.asked, c.asked}) {
			t.Errorf("%s: asked about %v, want %d twice", c.desc, asked, c.asked)
		}
	}
}
