package coretest_test

import (
	"io"
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
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/testlen"
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

// Whatever spelling of a path a router takes, the rule for the route applies.
func TestRulesBeforeRouters(t *testing.T) {
	testlen.SkipRace(t)
	for name, router := range routers {
		t.Run(name, func(t *testing.T) {
			coretest.Routes(t, coretest.RoutesConfig{
				AnyCase: strings.HasPrefix(name, "fiber") && name != "fiber, strict" && name != "fiber, strict in case",
				Serve: func(t *testing.T, text string) string {
					set, err := rules.Parse([]byte(text), "limits.yaml")
					if err != nil {
						t.Fatal(err)
					}
					listener := listen(t, "tcp4", "127.0.0.1:0")
					go router(set)(listener)
					return listener.Addr().String()
				},
			})
		})
	}
}
