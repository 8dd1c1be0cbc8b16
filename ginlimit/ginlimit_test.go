package ginlimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/ginlimit"
)

func init() { gin.SetMode(gin.TestMode) }

// limited serves all paths behind limiters.
func limited(serve gin.HandlerFunc, limiters []*core.Limiter) http.Handler {
	r := gin.New()
	for _, l := range limiters {
		r.Use(ginlimit.From(l))
	}
	r.Any("/*any", serve)
	return r
}

func TestAdapter(t *testing.T) {
	coretest.Adapter(t, coretest.AdapterConfig{
		App: func(text func() string, limiters ...*core.Limiter) http.Handler {
			return limited(func(c *gin.Context) { c.String(http.StatusOK, text()) }, limiters)
		},
		Handler: func(next http.Handler, limiters ...*core.Limiter) http.Handler {
			return limited(gin.WrapH(next), limiters)
		},
	})
}

func get(r http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	q := httptest.NewRequest("GET", path, nil)
	for i := 0; i < len(header); i += 2 {
		q.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, q)
	return w
}

type (
	handle = func(*gin.Context) error
	wrap   = coretest.Middleware[*gin.Context]
)

// plain returns middleware that leaves it to h to call Next.
func plain(h gin.HandlerFunc) wrap {
	return func(handle) handle { return func(c *gin.Context) error { h(c); return nil } }
}

func next(c *gin.Context) error { c.Next(); return nil }

func TestHandlers(t *testing.T) {
	coretest.Handlers(t, coretest.HandlersConfig[*gin.Context]{
		App: func(_ func(*gin.Context, error) error, serve handle, middleware ...wrap) http.Handler {
			r := gin.New()
			for _, m := range middleware {
				h := m(next)
				r.Use(func(c *gin.Context) { h(c) })
			}
			r.Any("/", func(c *gin.Context) { serve(c) })
			return r
		},
		New: func(p core.Policy, k core.Key, opts ...core.Option) wrap {
			return plain(ginlimit.New(p, k, opts...))
		},
		From: func(l *core.Limiter) wrap { return plain(ginlimit.From(l)) },
		WithDeny: func(f func(*gin.Context, core.Decision) error) core.Option {
			return ginlimit.WithDeny(func(c *gin.Context, d core.Decision) { f(c, d) })
		},
		Header:    func(c *gin.Context, name string) string { return c.GetHeader(name) },
		SetStatus: func(c *gin.Context, status int) { c.Status(status) },
		Write: func(c *gin.Context, text string) error {
			_, err := c.Writer.WriteString(text)
			return err
		},
		Answer:     func(c *gin.Context, status int, text string) error { c.String(status, text); return nil },
		Set:        func(c *gin.Context, key string, value any) { c.Set(key, value) },
		Context:    func(c *gin.Context) context.Context { return c.Request.Context() },
		SetContext: func(c *gin.Context, ctx context.Context) { c.Request = c.Request.WithContext(ctx) },
	})
}

func TestByRoute(t *testing.T) {
	r := gin.New()
	r.Use(ginlimit.New(core.PerMinute(2), ginlimit.ByRoute()))
	r.GET("/users/:id", func(c *gin.Context) { c.Status(200) })
	r.GET("/posts/:id", func(c *gin.Context) { c.Status(200) })
	for _, c := range []struct {
		path   string
		status int
	}{
		{"/users/1", 200}, {"/users/2", 200}, {"/users/3", 429}, {"/posts/1", 200},
		{"/nowhere", 404}, {"/elsewhere", 404}, {"/nothing", 429}, {"/posts/2", 200},
	} {
		if w := get(r, c.path); w.Code != c.status {
			t.Errorf("%s: status %d, want %d", c.path, w.Code, c.status)
		}
	}
}

// Since gin 1.11 values have keys of any type.
func TestByValueOfAnyKey(t *testing.T) {
	type key struct{}
	if _, ok := any(new(gin.Context)).(interface{ Set(key, value any) }); !ok {
		t.Skip("this gin has texts as keys")
	}
	r := gin.New()
	r.Use(func(c *gin.Context) { any(c).(interface{ Set(key, value any) }).Set(key{}, "ann") },
		ginlimit.New(core.PerMinute(1), core.ByValue(key{})))
	r.GET("/", func(c *gin.Context) { c.Status(200) })
	if first, second := get(r, "/"), get(r, "/"); first.Code != 200 || second.Code != 429 {
		t.Errorf("status %d, then %d", first.Code, second.Code)
	}
}
