package ginlimit_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
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
		{"304", func(c *gin.Context) { c.Status(304) }, 304, ""},
		{"404", func(c *gin.Context) { c.AbortWithStatus(404) }, 404, ""},
		{"500", func(c *gin.Context) { c.String(500, "down") }, 500, "down"},
		{"an error", func(c *gin.Context) { c.AbortWithError(409, errors.New("a conflict")) }, 409, ""},
		{"of net/http", gin.WrapH(http.NotFoundHandler()), 404, "404 page not found\n"},
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
		{"caught inside", func(limit gin.HandlerFunc) []gin.HandlerFunc {
			return []gin.HandlerFunc{limit, quiet}
		}, 503, 503},
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
	l := newLimiter(t, core.WithRefund(func(*gin.Context, int) bool { return true }))
	r := gin.New()
	r.Use(ginlimit.From(l))
	r.GET("/", func(*gin.Context) { panic("boom") })
	defer func() {
		if p := recover(); p != "boom" || used(t, l) != 0 {
			t.Errorf("recovered %v, %d units used", p, used(t, l))
		}
	}()
	get(r, "/", "User", "ann") // no middleware recovers from it
}

// Each limiter's callback is called, the inner one's first.
func TestRefundTwoLimiters(t *testing.T) {
	var asked []string
	limit := func(name string) gin.HandlerFunc {
		refund := core.WithRefund(func(_ *gin.Context, status int) bool {
			asked = append(asked, fmt.Sprint(name, " ", status))
			return true
		})
		return ginlimit.New(core.PerMinute(1), core.ByIP(), core.WithName(name), refund)
	}
	r := gin.New()
	r.Use(limit("outer"), limit("inner"))
	r.GET("/", func(c *gin.Context) { c.Status(409) })
	for range 3 {
		asked = nil
		if w := get(r, "/"); w.Code != 409 || !slices.Equal(asked, []string{"inner 409", "outer 409"}) {
			t.Errorf("status %d, asked %q", w.Code, asked)
		}
	}
}

// A client that has gone gets its unit back.
func TestRefundClientGone(t *testing.T) {
	begun, told := make(chan bool), make(chan bool, 9)
	l := newLimiter(t,
		core.WithRefund(func(c *gin.Context, _ int) bool { return c.Request.Context().Err() != nil }),
		core.WithObserver(func(_ context.Context, e core.Event) {
			if e.Outcome == event.Refunded {
				told <- true
			}
		}))
	r := gin.New()
	r.Use(ginlimit.From(l))
	r.GET("/", func(c *gin.Context) {
		begun <- true
		<-c.Request.Context().Done()
	})
	server := httptest.NewServer(r)
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("User", "ann")
	if response, err := http.DefaultClient.Do(q); err == nil {
		response.Body.Close()
		t.Errorf("status %d", response.StatusCode)
	}
	select {
	case <-told:
	case <-time.After(time.Minute):
		t.Fatal("nothing was given back")
	}
	if n := used(t, l); n != 0 {
		t.Errorf("%d units used, want 0", n)
	}
}

// A connection that the handler has taken over is served like any other.
func TestRefundHijacked(t *testing.T) {
	told := make(chan bool, 1)
	l := newLimiter(t, core.WithRefund(func(*gin.Context, int) bool { return true }),
		core.WithObserver(func(_ context.Context, e core.Event) {
			if e.Outcome == event.Refunded {
				told <- true
			}
		}))
	r := gin.New()
	r.Use(ginlimit.From(l))
	r.GET("/", func(c *gin.Context) {
		connection, _, err := c.Writer.Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer connection.Close()
		io.WriteString(connection, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
	})
	server := httptest.NewServer(r)
	defer server.Close()
	connection, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(connection, "GET / HTTP/1.1\r\nHost: sash\r\nUser: ann\r\n\r\n")
	if w, err := http.ReadResponse(bufio.NewReader(connection), nil); err != nil || w.StatusCode != 101 {
		t.Errorf("%+v, %v", w, err)
	}
	select {
	case <-told:
	case <-time.After(time.Minute):
		t.Fatal("nothing was given back")
	}
	if n := used(t, l); n != 0 {
		t.Errorf("%d units used, want 0", n)
	}
}
