package fiberlimit_test

import (
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/rewrite"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/fiberlimit/v3"
)

func parse(t *testing.T, text string) *rules.Set {
	t.Helper()
	set, err := rules.Parse([]byte(text), "limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// Whatever spelling of a path fiber's router takes, the rule for the route applies.
func TestRules(t *testing.T) {
	for name, c := range map[string]struct {
		config fiber.Config
		front  []any
	}{
		"plain":          {},
		"strict":         {config: fiber.Config{StrictRouting: true, CaseSensitive: true}},
		"unescaped":      {config: fiber.Config{UnescapePath: true}},
		"strict in case": {config: fiber.Config{CaseSensitive: true}},
		"strict slash":   {config: fiber.Config{StrictRouting: true}},
		"immutable":      {config: fiber.Config{Immutable: true}},
		"rewritten": {front: []any{
			rewrite.New(rewrite.Config{Rules: map[string]string{"/old/*": "/$1", "/*.json": "/$1"}}),
		}},
		"changed": {front: []any{func(c fiber.Ctx) error {
			if path := c.Path(); len(path) > 4 && path[:4] == "/old" {
				c.Path(path[4:])
				return c.RestartRouting()
			}
			return c.Next()
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			coretest.Routes(t, coretest.RoutesConfig{
				AnyCase: !c.config.CaseSensitive,
				Serve: func(t *testing.T, text string) string {
					app := fiber.New(c.config)
					if c.front != nil {
						app.Use(c.front...)
					}
					app.Use(fiberlimit.Rules(parse(t, text)))
					for route, path := range map[string]string{
						"health": "/health", "login": "/login", "v1": "/v1/*", "users": "/users/:id",
					} {
						app.Get(path, func(c fiber.Ctx) error { return c.SendString(route) })
					}
					return onLoopback(t, app)
				},
			})
		})
	}
}

// A HEAD that fiber answers by the handler of GET counts once, and shares the route's quota.
func TestAutomaticHEAD(t *testing.T) {
	var asked []int
	limit := fiberlimit.New(core.PerMinute(2), fiberlimit.ByRoute(),
		core.WithRefund(func(_ fiber.Ctx, status int) bool {
			asked = append(asked, status)
			return false
		}))
	app := fiber.New()
	g := app.Group("/api")
	g.Get("/users/:id", limit, func(c fiber.Ctx) error { return c.Status(404).SendString("gone") })
	g.Group("/v2").Get("/users/:id", limit, served)
	for i, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/api/users/1", 404}, {"HEAD", "/api/users/2", 404}, {"HEAD", "/api/users/3", 429},
		{"HEAD", "/api/v2/users/1", 200}, {"GET", "/api/v2/users/2", 200}, {"GET", "/api/v2/users/2", 429},
	} {
		asked = nil
		w := send(app, c.method, c.path)
		w.Body.Close()
		if w.StatusCode != c.status || w.Header.Get("RateLimit") == "" {
			t.Errorf("%d: %s %s: status %d, want %d", i, c.method, c.path, w.StatusCode, c.status)
		}
		if c.status != 429 && (len(asked) != 1 || asked[0] != c.status) {
			t.Errorf("%d: %s %s: asked about %v", i, c.method, c.path, asked)
		}
	}
}

// ByIP is by the peer, whatever fiber takes for the client's address. A key by c.IP() is by that.
func TestByIPBesideTrustProxy(t *testing.T) {
	app := fiber.New(fiber.Config{
		TrustProxy: true, TrustProxyConfig: fiber.TrustProxyConfig{Proxies: []string{"0.0.0.0/0"}},
		ProxyHeader: fiber.HeaderXForwardedFor,
	})
	address := func(c fiber.Ctx) error { return c.SendString(c.IP()) }
	app.Get("/peer", fiberlimit.New(core.PerMinute(2), core.ByIP()), address)
	fibers := core.By(func(c fiber.Ctx) (string, error) { return c.IP(), nil })
	app.Get("/fiber", fiberlimit.New(core.PerMinute(1), fibers), served)
	for i, address := range []string{"198.51.100.1", "198.51.100.2", "198.51.100.3"} {
		status, body, _ := get(t, app, "/peer", "X-Forwarded-For", address)
		if want := []int{200, 200, 429}[i]; status != want || want == 200 && body != address {
			t.Errorf("status %d, body %s", status, body)
		}
		for _, want := range []int{200, 429} {
			if status, _, _ := get(t, app, "/fiber", "X-Forwarded-For", address); status != want {
				t.Errorf("%s: status %d, want %d", address, status, want)
			}
		}
	}
}

// customCtx is a context of an application's own.
type customCtx struct {
	fiber.DefaultCtx

	user string
}

// Callbacks of an application with contexts of its own get these.
func TestCustomContexts(t *testing.T) {
	app := fiber.NewWithCustomCtx(func(app *fiber.App) fiber.CustomCtx {
		return &customCtx{DefaultCtx: *fiber.NewDefaultCtx(app)}
	})
	asked := 0
	app.Use(func(c fiber.Ctx) error {
		c.(*customCtx).user = c.Get("User")
		return c.Next()
	})
	user := core.By(func(c fiber.Ctx) (string, error) { return c.(*customCtx).user, nil })
	app.Use(fiberlimit.New(core.PerMinute(1), user, core.WithRefund(func(c fiber.Ctx, status int) bool {
		asked = status
		return c.(*customCtx).user == "bob"
	})))
	app.Get("/", func(fiber.Ctx) error { return fiber.ErrTeapot })
	for i, c := range []struct {
		user   string
		status int
	}{{"ann", 418}, {"ann", 429}, {"bob", 418}, {"bob", 418}} {
		asked = 0
		status, _, _ := get(t, app, "/", "User", c.user)
		if status != c.status || c.status == 418 && asked != 418 {
			t.Errorf("%d: status %d, asked about %d", i, status, asked)
		}
	}
}

// Requests without a route, and handlers of net/http, are limited like all others.
func TestOtherHandlers(t *testing.T) {
	var asked []int
	app := fiber.New()
	app.Use(fiberlimit.New(core.PerMinute(9), core.ByIP(), core.WithRefund(func(_ fiber.Ctx, status int) bool {
		asked = append(asked, status)
		return false
	})))
	app.Get("/net-http", http.NotFound)
	app.Get("/express", func(_ fiber.Req, res fiber.Res) error { return res.SendStatus(402) })
	app.Get("/fast", func(c fiber.Ctx) { c.Status(403) })
	app.Post("/post", served)
	for path, want := range map[string]int{"/net-http": 404, "/express": 402, "/fast": 403, "/post": 405, "/x": 404} {
		asked = nil
		status, _, _ := get(t, app, path)
		if status != want || len(asked) != 1 || asked[0] != want {
			t.Errorf("%s: status %d, asked about %v; want %d", path, status, asked, want)
		}
	}
}
