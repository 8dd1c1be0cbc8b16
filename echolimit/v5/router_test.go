package echolimit_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/echolimit/v5"
)

func used(t *testing.T, l *core.Limiter) int {
	t.Helper()
	d, err := l.Peek(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	return d.Used
}

// Whatever spelling of a path echo's router takes, the rule for the route applies.
func TestRules(t *testing.T) {
	type config = echo.RouterConfig
	type mount = func(e *echo.Echo, limit echo.MiddlewareFunc)
	plain := func(e *echo.Echo, limit echo.MiddlewareFunc) { e.Use(limit) }
	for name, c := range map[string]struct {
		config config
		mount  mount
	}{
		"plain":          {config{}, plain},
		"unescaped":      {config{UnescapePathParamValues: true}, plain},
		"decoded path":   {config{UseEscapedPathForMatching: true}, plain},
		"automatic HEAD": {config{AutoHandleHEAD: true}, plain},
		"slash removed": {config{}, func(e *echo.Echo, limit echo.MiddlewareFunc) {
			e.Pre(middleware.RemoveTrailingSlash())
			e.Use(limit)
		}},
		"slash removed in Use": {config{}, func(e *echo.Echo, limit echo.MiddlewareFunc) {
			e.Use(middleware.RemoveTrailingSlash(), limit)
		}},
		"slash removed behind": {config{}, func(e *echo.Echo, limit echo.MiddlewareFunc) {
			e.Use(limit, middleware.RemoveTrailingSlash())
		}},
		"slash added behind": {config{}, func(e *echo.Echo, limit echo.MiddlewareFunc) {
			e.Use(limit, middleware.AddTrailingSlash())
		}},
		"rewritten": {config{}, func(e *echo.Echo, limit echo.MiddlewareFunc) {
			e.Pre(middleware.Rewrite(map[string]string{"/old/*": "/$1", "/*.json": "/$1"}))
			e.Use(limit)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			coretest.Routes(t, coretest.RoutesConfig{Serve: func(t *testing.T, text string) string {
				set, err := rules.Parse([]byte(text), "limits.yaml")
				if err != nil {
					t.Fatal(err)
				}
				e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(c.config)})
				c.mount(e, echolimit.Rules(set))
				for route, path := range map[string]string{
					"health": "/health", "login": "/login", "v1": "/v1/*", "users": "/users/:id",
				} {
					e.GET(path, func(c *echo.Context) error { return c.String(http.StatusOK, route) })
				}
				server := httptest.NewServer(e)
				t.Cleanup(server.Close)
				return server.Listener.Addr().String()
			}})
		})
	}
}

// Mounted with Pre, rules see paths before middleware that removes slashes, and before the router.
func TestRulesBeforeSlashesAreRemoved(t *testing.T) {
	set, err := rules.Parse([]byte(`rules:
- {name: a, match: {path: /login}, key: ip, limits: [5/day]}
- {name: b, match: {path: "/users/{id}"}, key: ip, limits: [5/day]}`), "a.yaml")
	if err != nil {
		t.Fatal(err)
	}
	e := echo.New()
	e.Pre(echolimit.Rules(set), middleware.RemoveTrailingSlash())
	e.GET("/login", hello)
	e.GET("/users/:id", hello)
	for _, path := range []string{"/login", "/login/", "/users/7", "/users/7/%3F", "/users/7/8"} {
		if w := get(e, path); w.Code != 200 || w.Header().Get("RateLimit") == "" {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
}

// A HEAD that echo answers by the handler of GET counts once, whether the limiter is mounted on the router or on the
// route, and WithRefund gets the status that GET would have.
func TestAutomaticHEAD(t *testing.T) {
	for desc, c := range map[string]struct {
		handler echo.HandlerFunc
		status  int
	}{
		"a body":        {served, 200},
		"no content":    {func(c *echo.Context) error { return c.NoContent(204) }, 204},
		"nothing":       {func(*echo.Context) error { return nil }, 200},
		"404":           {func(c *echo.Context) error { return c.String(404, "gone") }, 404},
		"JSON":          {func(c *echo.Context) error { return c.JSON(403, "no") }, 403},
		"an error":      {func(*echo.Context) error { return echo.ErrNotFound }, 404},
		"a plain error": {func(*echo.Context) error { return io.EOF }, 500},
		"an error after the answer": {func(c *echo.Context) error {
			c.String(201, "made")
			return io.EOF
		}, 201},
		"flushed": {func(c *echo.Context) error {
			http.NewResponseController(c.Response()).Flush()
			return c.String(404, "gone")
		}, 404},
	} {
		for where, mounts := range map[string][2]int{"router": {1, 0}, "route": {0, 1}} {
			var asked []int
			l, err := core.New(core.PerMinute(9), core.ByHeader("User", core.Unverified),
				core.WithRefund(func(_ *echo.Context, status int) bool {
					asked = append(asked, status)
					return len(asked) == 1
				}))
			if err != nil {
				t.Fatal(err)
			}
			e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(echo.RouterConfig{AutoHandleHEAD: true})})
			limit := echolimit.From(l)
			on := []echo.MiddlewareFunc{limit}
			e.Use(on[:mounts[0]]...)
			e.GET("/", c.handler, on[:mounts[1]]...)
			for i := range 2 {
				w := send(e, http.MethodHead, "/", "User", "ann")
				if w.Code != c.status || w.Body.Len() > 0 || w.Header().Get("RateLimit") == "" {
					t.Errorf("%s, on the %s: status %d, %d bytes, %v", desc, where, w.Code, w.Body.Len(), w.Header())
				}
				if len(asked) != i+1 || asked[i] != c.status || used(t, l) != i {
					t.Errorf("%s, on the %s: asked about %v, %d units used; want %d",
						desc, where, asked, used(t, l), c.status)
				}
			}
		}
	}
}

// A refusal on a route has its status for HEAD as well, whatever the handler of WithDeny writes.
func TestAutomaticHEADRefused(t *testing.T) {
	for desc, c := range map[string]struct {
		deny   func(*echo.Context, core.Decision) error
		status int
	}{
		"the problem document": {nil, 429},
		"writes nothing":       {func(*echo.Context, core.Decision) error { return nil }, 429},
		"writes a body": {func(c *echo.Context, _ core.Decision) error {
			_, err := c.Response().Write([]byte("slow down"))
			return err
		}, 429},
		"sets a status": {func(c *echo.Context, _ core.Decision) error { response(c).Status = 418; return nil }, 418},
		"writes JSON":   {func(c *echo.Context, _ core.Decision) error { return c.JSON(503, "no") }, 503},
		"d.Err()":       {func(_ *echo.Context, d core.Decision) error { return d.Err() }, 429},
		"an error":      {func(*echo.Context, core.Decision) error { return echo.NewHTTPError(420, "calm") }, 420},
	} {
		var opts []core.Option
		if c.deny != nil {
			opts = append(opts, echolimit.WithDeny(c.deny))
		}
		e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(echo.RouterConfig{AutoHandleHEAD: true})})
		e.GET("/", served, echolimit.New(core.PerMinute(1), core.ByIP(), opts...))
		get(e, "/")
		w := send(e, http.MethodHead, "/")
		if w.Code != c.status || w.Body.Len() > 0 || w.Header().Get("Retry-After") != "60" {
			t.Errorf("%s: status %d, %d bytes, %v", desc, w.Code, w.Body.Len(), w.Header())
		}
	}
}

// A route's pattern is its key, whichever group it is of, and HEAD shares that of GET.
func TestByRoute(t *testing.T) {
	e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(echo.RouterConfig{AutoHandleHEAD: true})})
	e.Use(echolimit.New(core.PerMinute(2), echolimit.ByRoute()))
	g := e.Group("/api")
	g.GET("/users/:id", served)
	g.Group("/v2").GET("/users/:id", served)
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/api/users/1", 200}, {"HEAD", "/api/users/2", 200}, {"GET", "/api/users/3", 429},
		{"GET", "/api/v2/users/1", 200}, {"GET", "/api/v2/users/2", 200}, {"HEAD", "/api/v2/users/2", 429},
		{"GET", "/nowhere", 404}, {"GET", "/elsewhere", 404}, {"GET", "/nothing", 429},
	} {
		if w := send(e, c.method, c.path); w.Code != c.status {
			t.Errorf("%s %s: status %d, want %d", c.method, c.path, w.Code, c.status)
		}
	}
}

// By the peer, whatever echo takes for the client's address.
func TestByIPBesideIPExtractor(t *testing.T) {
	e := echo.New()
	_, all, _ := net.ParseCIDR("0.0.0.0/0")
	e.IPExtractor = echo.ExtractIPFromXFFHeader(echo.TrustIPRange(all))
	e.Use(echolimit.New(core.PerMinute(2), core.ByIP()))
	e.GET("/", func(c *echo.Context) error { return c.String(200, c.RealIP()) })
	for i, address := range []string{"198.51.100.1", "198.51.100.2", "198.51.100.3"} {
		w := get(e, "/", "X-Forwarded-For", address)
		if want := []int{200, 200, 429}[i]; w.Code != want || want == 200 && w.Body.String() != address {
			t.Errorf("status %d, body %s", w.Code, w.Body)
		}
	}
}
