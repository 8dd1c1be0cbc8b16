package fiberlimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/fiberlimit"
)

func serve(t *testing.T, text func() string, limiters ...*core.Limiter) func(*http.Request) *http.Response {
	t.Helper()
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	for _, l := range limiters {
		app.Use(fiberlimit.From(l))
	}
	app.All("/*", func(c *fiber.Ctx) error { return c.SendString(text()) })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- app.Listener(listener) }()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		app.Shutdown()
		listener.Close() // which Shutdown leaves open where the app has not begun to serve
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return coretest.Send(t, client, "http://"+listener.Addr().String())
}

func TestAdapter(t *testing.T) { coretest.Adapter(t, coretest.AdapterConfig{Serve: serve}) }

func get(t *testing.T, app *fiber.App, path string, header ...string) (int, string, http.Header) {
	t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w, err := app.Test(r, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.StatusCode, string(body), w.Header
}

func served(c *fiber.Ctx) error { return c.SendString("served") }

// app.Test has no address for its peer.
func ann() core.Key {
	return core.By(func(*fiber.Ctx) (string, error) { return "ann", nil })
}

func TestDenyHandlers(t *testing.T) {
	for _, c := range []struct {
		desc   string
		deny   func(*fiber.Ctx, core.Decision) error
		status int
		body   string
	}{
		{"writes nothing", func(*fiber.Ctx, core.Decision) error { return nil }, 429, ""},
		{"writes JSON", func(c *fiber.Ctx, d core.Decision) error {
			return c.Status(503).JSON(fiber.Map{"wait": d.RetryAfter.Seconds() > 59})
		}, 503, `{"wait":true}`},
		{"sets a status", func(c *fiber.Ctx, _ core.Decision) error { c.Status(418); return nil }, 418, ""},
		{"writes a body", func(c *fiber.Ctx, _ core.Decision) error {
			return c.SendString("slow down")
		}, 429, "slow down"},
		{"returns an error", func(*fiber.Ctx, core.Decision) error {
			return fiber.NewError(420, "calm")
		}, 420, "calm"},
		{"panics", func(*fiber.Ctx, core.Decision) error { panic("boom") }, 500, brokenBody},
	} {
		ran := 0
		app := fiber.New()
		app.Use(fiberlimit.New(core.PerMinute(1), ann(), fiberlimit.WithDeny(c.deny)))
		app.Get("/", func(c *fiber.Ctx) error { ran++; return served(c) })
		get(t, app, "/")
		status, body, header := get(t, app, "/")
		if status != c.status || body != c.body || ran != 1 || header.Get("Retry-After") != "60" {
			t.Errorf("%s: status %d, body %q, handler ran %d times, header %v", c.desc, status, body, ran, header)
		}
	}
}

// A central error handler sees the decision, knows the status, and is alone to write.
func TestCentralErrorHandler(t *testing.T) {
	var seen error
	app := fiber.New(fiber.Config{ErrorHandler: func(c *fiber.Ctx, err error) error {
		seen = err
		status := 500
		var fe *fiber.Error
		if errors.As(err, &fe) {
			status = fe.Code
		}
		return c.Status(status).SendString("central: " + err.Error())
	}})
	app.Use(fiberlimit.New(core.PerMinute(1), core.ByHeader("X-API-Key", core.Unverified)))
	app.Get("/", served)
	get(t, app, "/", "X-API-Key", "a")
	status, body, header := get(t, app, "/", "X-API-Key", "a")
	var limited *core.LimitedError
	if !errors.As(seen, &limited) || limited.Decision.Allowed || limited.Decision.RetryAfter == 0 {
		t.Errorf("it saw %v, want a LimitedError with its decision", seen)
	}
	if status != 429 || body != "central: Quota Exceeded" || header.Get("Retry-After") != "60" {
		t.Errorf("status %d, body %q, header %v", status, body, header)
	}
	if status, _, _ := get(t, app, "/"); status != 400 || !errors.Is(seen, core.ErrNoKey) {
		t.Errorf("no key: status %d, error %v", status, seen)
	}
}

// Some proxies write names in lower case, which is how fiber keeps them if it is told to.
func TestHeadersThatAreNotNormalized(t *testing.T) {
	app := fiber.New(fiber.Config{DisableHeaderNormalizing: true})
	app.Use(fiberlimit.New(core.PerMinute(1), core.ByHeader("X-API-Key", core.Unverified)))
	app.Get("/", served)
	for i, want := range []int{200, 200, 429, 400} {
		r := httptest.NewRequest("GET", "/", nil)
		if r.Header["x-api-key"] = []string{[]string{"ann", "bob", "ann", "eve"}[i]}; want == 400 {
			r.Header["X-API-Key"] = []string{"bob"}
		}
		w, err := app.Test(r, -1)
		if err != nil {
			t.Fatal(err)
		}
		if w.Body.Close(); w.StatusCode != want {
			t.Errorf("request %d: status %d, want %d", i+1, w.StatusCode, want)
		}
	}
}

func TestErrorHandler(t *testing.T) {
	app := fiber.New()
	app.Use(fiberlimit.New(core.PerMinute(1), core.ByHeader("X-API-Key", core.Unverified),
		fiberlimit.WithError(func(c *fiber.Ctx, err error) error {
			return c.Status(401).SendString(core.ProblemOf(err).Title)
		})))
	app.Get("/", served)
	if status, body, _ := get(t, app, "/"); status != 401 || body != "Bad Request" {
		t.Errorf("status %d, body %s", status, body)
	}
}

func TestCallbacksOfFiber(t *testing.T) {
	app := fiber.New()
	app.Use(func(c *fiber.Ctx) error {
		c.Locals("user", c.Get("User"))
		return c.Next()
	})
	app.Use(fiberlimit.New(
		core.LimitBy(func(c *fiber.Ctx) core.Limits {
			if c.Get("Plan") == "pro" {
				return core.Limits{core.PerMinute(20)}
			}
			return core.Limits{core.PerMinute(4)}
		}),
		core.First(
			core.ByValue("user"),
			core.By(func(c *fiber.Ctx) (string, error) { return c.Query("user"), nil }),
			core.Global(),
		),
		core.WithSkip(func(c *fiber.Ctx) bool { return c.Path() == "/healthz" }),
		core.WithCost(func(c *fiber.Ctx) int { return len(c.GetReqHeaders()["Unit"]) + 1 }),
	))
	app.Get("/*", served)
	ask := func(want string, path string, header ...string) {
		t.Helper()
		if _, _, got := get(t, app, path, header...); got.Get("RateLimit") != want {
			t.Errorf("%s %v: RateLimit %s, want %s", path, header, got.Get("RateLimit"), want)
		}
	}
	ask(`"4-per-minute";r=3;t=60`, "/", "User", "ann")
	ask(`"4-per-minute";r=3;t=60`, "/?user=bob")
	ask(`"4-per-minute";r=3;t=60`, "/")
	ask(``, "/healthz")
	ask(`"4-per-minute";r=1;t=60`, "/", "User", "ann", "Unit", "1")
	ask(`"20-per-minute";r=16;t=60`, "/", "User", "ann", "Plan", "pro")
}

func TestByRoute(t *testing.T) {
	limit := fiberlimit.New(core.PerMinute(2), fiberlimit.ByRoute())
	app := fiber.New()
	app.Get("/users/:id", limit, served)
	app.Get("/posts/:id", limit, served)
	for _, c := range []struct {
		path   string
		status int
	}{
		{"/users/1", 200}, {"/users/2", 200}, {"/users/3", 429},
		{"/posts/1", 200}, {"/posts/2", 200}, {"/posts/3", 429},
	} {
		if status, _, _ := get(t, app, c.path); status != c.status {
			t.Errorf("%s: status %d, want %d", c.path, status, c.status)
		}
	}
}

// direct hands requests to fiber as fasthttp would, with any peer.
func direct(_ *testing.T, text func() string, limiters ...*core.Limiter) func(*http.Request) *http.Response {
	app := fiber.New()
	for _, l := range limiters {
		app.Use(fiberlimit.From(l))
	}
	app.All("/*", func(c *fiber.Ctx) error { return c.SendString(text()) })
	serve := app.Handler()
	return func(r *http.Request) *http.Response {
		var request fasthttp.Request
		request.Header.SetMethod(r.Method)
		request.SetRequestURI(r.URL.Path)
		for name, values := range r.Header {
			for _, v := range values {
				request.Header.Add(name, v)
			}
		}
		var ctx fasthttp.RequestCtx
		ctx.Init(&request, peer(r), nil)
		serve(&ctx)
		return &http.Response{StatusCode: ctx.Response.StatusCode()}
	}
}

// peer is the other end as a listener of the request's network would name it.
func peer(r *http.Request) net.Addr {
	if r.Context().Value(http.LocalAddrContextKey).(net.Addr).Network() == "unix" {
		return &net.UnixAddr{Name: r.RemoteAddr, Net: "unix"}
	}
	if ap, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return net.TCPAddrFromAddrPort(ap)
	}
	return odd(r.RemoteAddr)
}

type odd string

func (odd) Network() string  { return "tcp" }
func (o odd) String() string { return string(o) }

func TestClientIP(t *testing.T) { coretest.ClientIP(t, direct) }

// Fiber has no server that recovers from panics, so even http.ErrAbortHandler is answered with 500.
func TestAbortHandler(t *testing.T) {
	app := fiber.New()
	abort := core.By(func(*fiber.Ctx) (string, error) { panic(http.ErrAbortHandler) })
	app.Use(fiberlimit.New(core.PerMinute(1), abort))
	if status, _, _ := get(t, app, "/"); status != 500 {
		t.Errorf("status %d", status)
	}
}

type contextKey struct{}

// What earlier middleware left is found in fiber's locals and in the user's context.
func TestByValue(t *testing.T) {
	for _, put := range []func(*fiber.Ctx){
		func(c *fiber.Ctx) { c.Locals("user", "ann") },
		func(c *fiber.Ctx) { c.SetUserContext(context.WithValue(c.UserContext(), contextKey{}, "ann")) },
	} {
		app := fiber.New()
		app.Use(func(c *fiber.Ctx) error { put(c); return c.Next() })
		app.Use(fiberlimit.New(core.PerMinute(1), core.First(core.ByValue("user"), core.ByValue(contextKey{}))))
		app.Get("/", served)
		first, _, _ := get(t, app, "/")
		second, _, _ := get(t, app, "/")
		if first != 200 || second != 429 {
			t.Errorf("status %d, then %d", first, second)
		}
	}
}

// UnescapePath decodes what net/url refuses, and routes by what it has not cleaned.
func TestRulesOfUnescapedPaths(t *testing.T) {
	const text = "rules: [{name: v1, match: {path: /v1/}, key: global, limits: [9/day]}]"
	set, err := rules.Parse([]byte(text), "limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New(fiber.Config{UnescapePath: true})
	app.Use(fiberlimit.Rules(set))
	app.Get("/v1/*", served)
	r := httptest.NewRequest("GET", "/", nil)
	r.RequestURI = "/v1%2f../x%" // which App.Test sends
	w, err := app.Test(r, -1)
	if err != nil {
		t.Fatal(err)
	}
	if w.Body.Close(); w.StatusCode != 200 || w.Header.Get("RateLimit") == "" {
		t.Errorf("status %d, %v", w.StatusCode, w.Header)
	}
}
