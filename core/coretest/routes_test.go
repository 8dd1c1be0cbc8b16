package coretest_test

import (
	"errors"
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
	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/echolimit"
	"github.com/sashlimit/sash/fiberlimit"
	"github.com/sashlimit/sash/ginlimit"
	"github.com/sashlimit/sash/nethttp"
)

// router serves by the rules of a set.
type router = func(*rules.Set) func(net.Listener) error

// routers have routes for /health, /login, /v1/ and what is below it, and /users/ID. Each answers with its first word.
var routers = map[string]router{
	"nethttp": func(set *rules.Set) func(net.Listener) error { return serveHTTP(nethttp.Rules(set)(newMux())) },
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
	"nethttp, prefix stripped": func(set *rules.Set) func(net.Listener) error {
		limited := nethttp.Rules(set)(newMux())
		outer := http.NewServeMux()
		outer.Handle("/old/", http.StripPrefix("/old", limited))
		outer.Handle("/", limited)
		return serveHTTP(outer)
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
	"echo": echoRouter(func(e *echo.Echo, limit echo.MiddlewareFunc) { e.Use(limit) }),
	"echo, slash removed": echoRouter(func(e *echo.Echo, limit echo.MiddlewareFunc) {
		e.Pre(echoware.RemoveTrailingSlash())
		e.Use(limit)
	}),
	"echo, slash removed in Use": echoRouter(func(e *echo.Echo, limit echo.MiddlewareFunc) {
		e.Use(echoware.RemoveTrailingSlash(), limit, echoware.RemoveTrailingSlash(), echoware.AddTrailingSlash())
	}),
	"echo, rewritten": echoRouter(func(e *echo.Echo, limit echo.MiddlewareFunc) {
		e.Pre(echoware.Rewrite(map[string]string{"/old/*": "/$1", "/*.json": "/$1"}))
		e.Use(limit)
	}),
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

func serveHTTP(h http.Handler) func(net.Listener) error {
	return func(l net.Listener) error { return http.Serve(l, h) }
}

// eachRoute adds the routes, with a router's patterns for what is below /v1/ and for a user.
func eachRoute(v1, user string, add func(path, answer string)) {
	for answer, path := range map[string]string{"health": "/health", "login": "/login", "v1": v1, "users": user} {
		add(path, answer)
	}
}

func answering(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, answer) }
}

func newMux() http.Handler {
	mux := http.NewServeMux()
	eachRoute("/v1/", "/users/{id}", func(path, answer string) { mux.HandleFunc(path, answering(answer)) })
	return mux
}

type uses []func(http.Handler) http.Handler

// pathMiddleware changes the path by which chi routes, and not the request.
var pathMiddleware = uses{middleware.CleanPath, middleware.StripSlashes, middleware.URLFormat}

// chiRouter has middleware in front of the rules and behind them.
func chiRouter(front, behind uses) router {
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
	eachRoute("/v1/*", "/users/{id}", func(path, answer string) { r.HandleFunc(path, answering(answer)) })
}

func echoRouter(mount func(e *echo.Echo, limit echo.MiddlewareFunc)) router {
	return func(set *rules.Set) func(net.Listener) error {
		e := echo.New()
		mount(e, echolimit.Rules(set))
		eachRoute("/v1/*", "/users/:id", func(path, answer string) {
			e.GET(path, func(c echo.Context) error { return c.String(http.StatusOK, answer) })
		})
		return serveHTTP(e)
	}
}

func ginRouter(configure func(*gin.Engine)) router {
	return func(set *rules.Set) func(net.Listener) error {
		gin.SetMode(gin.TestMode)
		e := gin.New()
		configure(e)
		e.Use(ginlimit.Rules(set))
		eachRoute("/v1/*rest", "/users/:id", func(path, answer string) {
			e.GET(path, func(c *gin.Context) { c.String(http.StatusOK, answer) })
		})
		return serveHTTP(e)
	}
}

func fiberRouter(config fiber.Config, front ...fiber.Handler) router {
	return func(set *rules.Set) func(net.Listener) error {
		config.DisableStartupMessage = true
		app := fiber.New(config)
		for _, h := range front {
			app.Use(h)
		}
		app.Use(fiberlimit.Rules(set))
		user := "/Users/:id"
		if config.CaseSensitive {
			user = strings.ToLower(user)
		}
		eachRoute("/v1/*", user, func(path, answer string) {
			app.Get(path, func(c *fiber.Ctx) error { return c.SendString(answer) })
		})
		return app.Listener
	}
}

// Whatever spelling of a path a router takes, the rule for the route applies. Rules match and answer the same requests
// in each.
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
					listener, err := net.Listen("tcp", "127.0.0.1:0")
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { listener.Close() })
					go router(set)(listener)
					return listener.Addr().String()
				},
			})
		})
	}
}

// A program that goes on after the error of rules.Load learns at its start what is wrong.
func TestRulesWithoutASet(t *testing.T) {
	missing, _ := rules.Parse(nil, "limits.yaml")
	for name, mount := range map[string]func(core.RuleSet){
		"nethttp":    func(set core.RuleSet) { nethttp.Rules(set) },
		"chilimit":   func(set core.RuleSet) { chilimit.Rules(set) },
		"echolimit":  func(set core.RuleSet) { echolimit.Rules(set) },
		"fiberlimit": func(set core.RuleSet) { fiberlimit.Rules(set) },
		"ginlimit":   func(set core.RuleSet) { ginlimit.Rules(set) },
	} {
		for _, set := range []core.RuleSet{nil, missing} {
			func() {
				defer func() {
					err, _ := recover().(error)
					var config *core.ConfigError
					if !errors.As(err, &config) || !strings.Contains(config.Remedy, "rules.Load") {
						t.Errorf("%s: %v", name, err)
					}
				}()
				mount(set)
			}()
		}
	}
}
