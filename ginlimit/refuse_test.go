package ginlimit_test

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/ginlimit"
)

// forgetful recovers a panic and does not abort, so that gin goes on to the next handler.
func forgetful(c *gin.Context) {
	defer func() {
		if recover() != nil {
			c.String(503, "sorry")
		}
	}()
	c.Next()
}

// The status of a refusal is sent before middleware in front of the limiter goes on.
func TestStatusSetAfterARefusal(t *testing.T) {
	r := gin.New()
	r.Use(func(c *gin.Context) {
		c.Next()
		c.Status(http.StatusOK)
	})
	r.Use(ginlimit.New(core.PerMinute(1), core.ByHeader("User", core.Unverified),
		ginlimit.WithDeny(func(*gin.Context, core.Decision) {}), ginlimit.WithError(func(*gin.Context, error) {})))
	r.GET("/", func(*gin.Context) {})
	for _, c := range []struct {
		user   []string
		status int
	}{{[]string{"User", "ann"}, 200}, {[]string{"User", "ann"}, 429}, {nil, 400}} {
		if w := get(r, "/", c.user...); w.Code != c.status {
			t.Errorf("%v: status %d, want %d", c.user, w.Code, c.status)
		}
	}
}

// The protected handler does not run, whatever the handler of a refusal does.
func TestRefusalsNeverServe(t *testing.T) {
	for _, c := range []struct {
		desc   string
		answer gin.HandlerFunc
		status int
	}{
		{"calls Next", func(c *gin.Context) { c.Next() }, 429},
		{"calls Next twice", func(c *gin.Context) { c.Next(); c.Next() }, 429},
		{"writes and calls Next", func(c *gin.Context) { c.String(503, "slow down"); c.Next() }, 503},
		{"panics", func(*gin.Context) { panic("boom") }, 503},
	} {
		for _, denied := range []bool{true, false} {
			status := c.status
			if !denied && status == 429 {
				status = 400
			}
			ran := 0
			r := gin.New()
			r.Use(forgetful, ginlimit.New(core.PerMinute(1), core.ByHeader("User", core.Unverified),
				ginlimit.WithDeny(func(g *gin.Context, _ core.Decision) { c.answer(g) }),
				ginlimit.WithError(func(g *gin.Context, _ error) { c.answer(g) })))
			r.Use(func(*gin.Context) { ran++ })
			r.GET("/", func(*gin.Context) { ran++ })
			header := []string{}
			if denied {
				header = []string{"User", "ann"}
				get(r, "/", header...)
				ran = 0
			}
			if w := get(r, "/", header...); w.Code != status || ran != 0 {
				t.Errorf("%s, denied %v: status %d, want %d; %d handlers ran", c.desc, denied, w.Code, status, ran)
			}
		}
	}
}

// A panic in a handler of refusals is passed on to the middleware that recovers from it, or to the server.
func TestRefusalPanics(t *testing.T) {
	for _, value := range []any{"boom", http.ErrAbortHandler} {
		r := gin.New()
		r.Use(ginlimit.New(core.PerMinute(1), core.ByHeader("User", core.Unverified),
			ginlimit.WithError(func(*gin.Context, error) { panic(value) })))
		r.GET("/", func(*gin.Context) { t.Error("served") })
		func() {
			defer func() {
				if p := recover(); p != value {
					t.Errorf("recovered %v, want %v", p, value)
				}
			}()
			get(r, "/")
		}()
	}
}
