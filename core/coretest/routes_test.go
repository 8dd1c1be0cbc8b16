package coretest_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/rewrite"
	"github.com/labstack/echo/v4"
	echoware "github.com/labstack/echo/v4/middleware"

	"github.com/sashlimit/sash/chilimit"
	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/echolimit"
	"github.com/sashlimit/sash/fiberlimit"
	"github.com/sashlimit/sash/ginlimit"
	"github.com/sashlimit/sash/nethttp"
)

// routers have routes for /health, /login, /v1/ and what is below it, and /users/ID. Each answers with its first word.
var routers = map[string]func(*rules.Set) func(net.Listener) error{
	"nethttp": func(set *rules.Set) func(net.Listener) error {
		mux := http.NewServeMux()
		for route, path := range map[string]string{
			"health": "/health", "login": "/login", "v1": "/v1/", "users": "/users/{id}",
		} {
			mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, route) })
		}
		return serveHTTP(nethttp.Rules(set)(mux))
	},
	"prefixes": func(set *rules.Set) func(net.Listener) error { // as code that asks for the path itself
		return serveHTTP(nethttp.Rules(set)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch path := r.URL.Path; {
			case path == "/health", path == "/login":
				io.WriteString(w, path[1:])
			case strings.HasPrefix(path, "/v1/"):
				io.WriteString(w, "v1")
			}
		})))
	},
	"chi":                       chiRouter(nil, nil),
	"chi, clean":                chiRouter(uses{middleware.CleanPath}, nil),
	"chi, strip":                chiRouter(uses{middleware.StripSlashes}, nil),
	"chi, format":               chiRouter(uses{middleware.URLFormat}, nil),
	"chi, all":                  chiRouter(pathMiddleware, nil),
	"chi, clean behind":         chiRouter(nil, uses{middleware.CleanPath}),
	"chi, strip behind":         chiRouter(nil, uses{middleware.StripSlashes}),
	"chi, format behind":        chiRouter(nil, uses{middleware.URLFormat}),
	"chi, all behind":           chiRouter(nil, pathMiddleware),
	"chi, format, strip behind": chiRouter(nil, uses{middleware.URLFormat, middleware.StripSlashes}),
	"chi, clean and all behind": chiRouter(uses{middleware.CleanPath}, pathMiddleware),
	"chi, mounted": func(set *rules.Set) func(net.Listener) error {
		r := chi.NewRouter()
		r.Use(pathMiddleware...)
		r.Route("/", func(r chi.Router) {
			r.Use(chilimit.Rules(set))
			r.Use(pathMiddleware...)
			chiRoutes(r)
		})
		return serveHTTP(r)
	},
	"chi, mounted behind": func(set *rules.Set) func(net.Listener) error {
		r := chi.NewRouter()
		r.Use(chilimit.Rules(set), middleware.URLFormat)
		r.Route("/", func(r chi.Router) {
			r.Use(pathMiddleware...)
			chiRoutes(r)
		})
		return serveHTTP(r)
	},
	"chi, rewritten": chiRouter(uses{func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := chi.RouteContext(r.Context())
			c.RoutePath = strings.TrimPrefix(r.URL.Path, "/old")
			next.ServeHTTP(w, r)
		})
	}}, nil),
	"nethttp, prefix stripped": func(set *rules.Set) func(net.Listener) error {
		mux := http.NewServeMux()
		for route, path := range map[string]string{
			"health": "/health", "login": "/login", "v1": "/v1/", "users": "/users/{id}",
		} {
			mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, route) })
		}
		limited := nethttp.Rules(set)(mux)
		outer := http.NewServeMux()
		outer.Handle("/old/", http.StripPrefix("/old", limited))
		outer.Handle("/", limited)
		return serveHTTP(outer)
	},
	"echo": echoRouter(func(*echo.Echo) {}, func(*echo.Echo) {}),
	"echo, slash removed": echoRouter(
		func(e *echo.Echo) { e.Pre(echoware.RemoveTrailingSlash()) }, func(*echo.Echo) {}),
	"echo, slash removed in Use": echoRouter(func(e *echo.Echo) { e.Use(echoware.RemoveTrailingSlash()) },
		func(e *echo.Echo) { e.Use(echoware.RemoveTrailingSlash(), echoware.AddTrailingSlash()) }),
	"echo, rewritten": echoRouter(func(e *echo.Echo) {
		e.Pre(echoware.Rewrite(map[string]string{"/old/*": "/$1", "/*.json": "/$1"}))
	}, func(*echo.Echo) {}),
	"gin":                   ginRouter(func(*gin.Engine) {}),
	"gin, raw":              ginRouter(func(e *gin.Engine) { e.UseRawPath = true }),
	"gin, raw and no slash": ginRouter(func(e *gin.Engine) { e.UseRawPath, e.RemoveExtraSlash = true, true }),
	"gin, no extra slash":   ginRouter(func(e *gin.Engine) { e.RemoveExtraSlash = true }),
	"gin, fixed path":       ginRouter(func(e *gin.Engine) { e.RedirectFixedPath = true }),
	"fiber":                 fiberRouter(fiber.Config{}),
	"fiber, strict":         fiberRouter(fiber.Config{StrictRouting: true, CaseSensitive: true}),
	"fiber, unescaped":      fiberRouter(fiber.Config{UnescapePath: true}),
	"fiber, strict in case": fiberRouter(fiber.Config{CaseSensitive: true}),
	"fiber, strict slash":   fiberRouter(fiber.Config{StrictRouting: true}),
	"fiber, rewritten": fiberRouter(fiber.Config{},
		rewrite.New(rewrite.Config{Rules: map[string]string{"/old/*": "/$1", "/*.json": "/$1"}})),
}

type uses []func(http.Handler) http.Handler

// pathMiddleware changes the path by which chi routes, and not the request.
var pathMiddleware = uses{middleware.CleanPath, middleware.StripSlashes, middleware.URLFormat}

// chiRouter has middleware in front of the rules and behind them.
func chiRouter(front, behind uses) func(*rules.Set) func(net.Listener) error {
	return func(set *rules.Set) func(net.Listener) error {
		r := chi.NewRouter()
		r.Use(front...)
		r.Use(chilimit.Rules(set))
		r.Use(behind...)
		chiRoutes(r)
		return serveHTTP(r)
	}
}

func chiRoutes(r chi.Router) {
	for route, path := range map[string]string{
		"health": "/health", "login": "/login", "v1": "/v1/*", "users": "/users/{id}",
	} {
		r.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, route) })
	}
}

func echoRouter(front, behind func(*echo.Echo)) func(*rules.Set) func(net.Listener) error {
	return func(set *rules.Set) func(net.Listener) error {
		e := echo.New()
		front(e)
		e.Use(echolimit.Rules(set))
		behind(e)
		for route, path := range map[string]string{
			"health": "/health", "login": "/login", "v1": "/v1/*", "users": "/users/:id",
		} {
			e.GET(path, func(c echo.Context) error { return c.String(http.StatusOK, route) })
		}
		return serveHTTP(e)
	}
}

func ginRouter(configure func(*gin.Engine)) func(*rules.Set) func(net.Listener) error {
	return func(set *rules.Set) func(net.Listener) error {
		gin.SetMode(gin.TestMode)
		e := gin.New()
		configure(e)
		e.Use(ginlimit.Rules(set))
		for route, path := range map[string]string{
			"health": "/health", "login": "/login", "v1": "/v1/*rest", "users": "/users/:id",
		} {
			e.GET(path, func(c *gin.Context) { c.String(http.StatusOK, route) })
		}
		return serveHTTP(e)
	}
}

func fiberRouter(config fiber.Config, front ...fiber.Handler) func(*rules.Set) func(net.Listener) error {
	return func(set *rules.Set) func(net.Listener) error {
		config.DisableStartupMessage = true
		app := fiber.New(config)
		for _, h := range front {
			app.Use(h)
		}
		app.Use(fiberlimit.Rules(set))
		for route, path := range map[string]string{
			"health": "/health", "login": "/login", "v1": "/v1/*", "users": "/Users/:id",
		} {
			if config.CaseSensitive {
				path = strings.ToLower(path)
			}
			app.Get(path, func(c *fiber.Ctx) error { return c.SendString(route) })
		}
		return app.Listener
	}
}

// spelled returns a path in another spelling.
func spelled(r *rand.Rand, path string) string {
	for range r.IntN(4) {
		at := r.IntN(len(path))
		switch r.IntN(11) {
		case 0:
			path += "/"
		case 1:
			path = path[:at] + strings.ToUpper(path[at:])
		case 2:
			if path[at] != '%' {
				path = path[:at] + fmt.Sprintf("%%%02x", path[at]) + path[at+1:]
			}
		case 3:
			path = strings.Replace(path, "/", "%2F", 1+r.IntN(2))
			path = "/" + strings.TrimPrefix(path, "%2F")
		case 4:
			path = strings.Replace(path, "/", "//", 1)
		case 5:
			path = []string{"/x/..", "/.", "/health%2F..", "/%2e%2e", "/..", "/health%2f%2e%2e"}[r.IntN(6)] + path
		case 6:
			path += []string{"/..", "%2F..", "/../..", "/..%2f..%2fhealth", "%2f../health", "/%2e%2e/health"}[r.IntN(6)]
		case 7:
			path += []string{"?x=/health", ";x", "%3F", "%00", "."}[r.IntN(5)]
		case 8:
			path = strings.Replace(path, "/", []string{"/./", "%2F.%2F", "/%2e/"}[r.IntN(3)], 1)
			path = "/" + strings.TrimPrefix(strings.TrimPrefix(path, "%2F"), "/")
		case 9:
			path += []string{".json", "/.json", ".a.b", "%2ejson", "//"}[r.IntN(5)]
		case 10:
			path = "/old" + path
		}
	}
	return path
}

// Whatever spelling of a path a router takes, the rule for the route applies.
func TestRulesBeforeRouters(t *testing.T) {
	const text = `
apply: %s
rules:
- {name: health, match: {path: /health}, unlimited: true}
- {name: login, match: {path: /login}, key: global, limits: [1000000/day]}
- {name: v1, match: {path: /v1/}, key: global, limits: [1000000/day]}
- {name: users, match: {path: "/Users/{id}"}, key: global, limits: [1000000/day]}
`
	for name, router := range routers {
		for _, apply := range []string{"first", "all"} {
			t.Run(name+" "+apply, func(t *testing.T) {
				text := fmt.Sprintf(text, apply)
				if !strings.HasPrefix(name, "fiber") || name == "fiber, strict" || name == "fiber, strict in case" {
					text = strings.ToLower(text)
				}
				set, err := rules.Parse([]byte(text), "limits.yaml")
				if err != nil {
					t.Fatal(err)
				}
				listener := listen(t, "tcp4", "127.0.0.1:0")
				go router(set)(listener)
				if odd := trySpellings(t, listener.Addr().String()); odd < 20 {
					t.Errorf("only %d odd spellings were served", odd)
				}
			})
		}
	}
}

// trySpellings sends paths and returns how many odd ones were served by a route with a limit.
func trySpellings(t *testing.T, address string) (odd int) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	c := &rawClient{address: address}
	defer c.close()
	for range 1500 {
		base := []string{"/login", "/v1/x", "/v1/x/y", "/users/7", "/health"}[r.IntN(5)]
		path := spelled(r, base)
		w, route := c.get(t, path)
		if w.StatusCode != http.StatusOK || route == "" || route == "health" {
			continue
		}
		if path != base {
			odd++
		}
		if limits := w.Header.Get("RateLimit-Policy"); !strings.Contains(limits, `"`+route+"-") {
			t.Errorf("seed %#x: %s is served by %s, and limited by %q", seed, path, route, limits)
		}
	}
	return odd
}

// rawClient sends paths as they are, which an http.Client does not.
type rawClient struct {
	address string
	conn    net.Conn
	from    *bufio.Reader
}

func (c *rawClient) close() {
	if c.conn != nil {
		c.conn.Close()
	}
	c.conn = nil
}

func (c *rawClient) get(t *testing.T, path string) (w *http.Response, body string) {
	t.Helper()
	if c.conn == nil {
		var d net.Dialer
		conn, err := d.DialContext(t.Context(), "tcp", c.address)
		if err != nil {
			t.Fatal(err)
		}
		c.conn, c.from = conn, bufio.NewReader(conn)
	}
	fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: a.example\r\n\r\n", path)
	w, err := http.ReadResponse(c.from, nil)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	defer w.Body.Close()
	b, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if w.Close { // as after a path that is none
		c.close()
	}
	return w, string(b)
}
