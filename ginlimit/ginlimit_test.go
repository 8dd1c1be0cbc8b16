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

// The next handler must not run, even if the deny handler does not abort. What it writes answers calls of gRPC as well.
func TestDenyAborts(t *testing.T) {
	for _, c := range []struct {
		desc   string
		deny   func(*gin.Context, core.Decision)
		status int
		body   string
	}{
		{"writes nothing", func(*gin.Context, core.Decision) {}, 429, ""},
		{"writes JSON", func(c *gin.Context, d core.Decision) {
			c.JSON(503, gin.H{"wait": d.RetryAfter.Seconds() > 59})
		}, 503, `{"wait":true}`},
		{"sets a status", func(c *gin.Context, _ core.Decision) { c.Status(418) }, 418, ""},
		{"writes a body", func(c *gin.Context, _ core.Decision) {
			c.Writer.WriteString("slow down")
		}, 429, "slow down"},
	} {
		for _, contentType := range []string{"", "application/grpc"} {
			ran := 0
			r := gin.New()
			r.Use(ginlimit.New(core.PerMinute(1), core.ByIP(), ginlimit.WithDeny(c.deny)))
			r.POST("/", func(c *gin.Context) { ran++; c.String(200, "served") })
			var w *httptest.ResponseRecorder
			for range 2 {
				q := httptest.NewRequest(http.MethodPost, "/", nil)
				q.Header.Set("Content-Type", contentType)
				w = httptest.NewRecorder()
				r.ServeHTTP(w, q)
			}
			if h := w.Header(); w.Code != c.status || w.Body.String() != c.body || ran != 1 ||
				h.Get("Retry-After") != "60" || h.Get("Grpc-Status") != "" {
				t.Errorf("%s: status %d, body %q, handler ran %d times, header %v", c.desc, w.Code, w.Body, ran, h)
			}
		}
	}
}

func TestCallbacksOfGin(t *testing.T) {
	r := gin.New()
	r.Use(func(c *gin.Context) { c.Set("user", c.GetHeader("User")) })
	r.Use(ginlimit.New(
		core.LimitBy(func(c *gin.Context) core.Limits {
			if c.GetHeader("Plan") == "pro" {
				return core.Limits{core.PerMinute(20)}
			}
			return core.Limits{core.PerMinute(4)}
		}),
		core.First(
			core.ByValue("user"),
			core.By(func(c *gin.Context) (string, error) { return c.Query("user"), nil }),
			core.ByIP(),
		),
		core.WithSkip(func(c *gin.Context) bool { return c.FullPath() == "/healthz" }),
		core.WithCost(func(c *gin.Context) int { return len(c.Request.Header["Unit"]) + 1 }),
	))
	r.GET("/*any", func(c *gin.Context) { c.Status(200) })
	ask := func(want string, path string, header ...string) {
		t.Helper()
		if got := get(r, path, header...).Header().Get("RateLimit"); got != want {
			t.Errorf("%s %v: RateLimit %s, want %s", path, header, got, want)
		}
	}
	ask(`"4-per-minute";r=3;t=60`, "/", "User", "ann")
	ask(`"4-per-minute";r=3;t=60`, "/?user=bob")
	ask(`"4-per-minute";r=3;t=60`, "/")
	ask(`"4-per-minute";r=1;t=60`, "/", "User", "ann", "Unit", "")
	ask(`"20-per-minute";r=16;t=60`, "/", "User", "ann", "Plan", "pro")
	ask(`"4-per-minute";r=2;t=60`, "/?user=bob")
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

type contextKey struct{}

// ByValue finds values that earlier middleware has set in gin's context or in the request's.
func TestByValue(t *testing.T) {
	for _, put := range []func(*gin.Context){
		func(c *gin.Context) { c.Set("user", "ann") },
		func(c *gin.Context) {
			if set, ok := any(c).(interface{ Set(key, value any) }); ok { // since gin 1.11
				set.Set(contextKey{}, "ann")
			} else {
				c.Set("user", "ann")
			}
		},
		func(c *gin.Context) {
			c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), contextKey{}, "ann"))
		},
	} {
		r := gin.New()
		r.Use(put, ginlimit.New(core.PerMinute(1), core.First(core.ByValue("user"), core.ByValue(contextKey{}))))
		r.GET("/", func(c *gin.Context) { c.Status(200) })
		if first, second := get(r, "/"), get(r, "/"); first.Code != 200 || second.Code != 429 {
			t.Errorf("status %d, then %d", first.Code, second.Code)
		}
	}
}
