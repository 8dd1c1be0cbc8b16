package fiberlimit_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/fiberlimit/v3"
)

// send sends a request through App.Test, whose requests come from 192.0.2.1. header is names and values.
func send(app *fiber.App, method, path string, header ...string) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	r.RequestURI = r.URL.RequestURI() // with a whole URL, App.Test sends no Host
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w, err := app.Test(r, fiber.TestConfig{}) // without a timeout
	if err != nil {
		panic(err)
	}
	return w
}

// show prints how app answers a request for path.
func show(app *fiber.App, path string) {
	w := send(app, fiber.MethodGet, path)
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		panic(err)
	}
	fmt.Println(path, w.StatusCode, string(body))
}

func hello(c fiber.Ctx) error { return c.SendString("Hello!") }

// Each client address may send two requests in any hour.
func ExampleNew() {
	app := fiber.New()
	app.Use(fiberlimit.New(core.PerHour(2), core.ByIP()))
	app.Get("/", hello)

	for range 3 {
		w, err := app.Test(httptest.NewRequest(fiber.MethodGet, "/", nil), fiber.TestConfig{})
		if err != nil {
			fmt.Println(err)
			return
		}
		w.Body.Close()
		fmt.Println(w.StatusCode, w.Header.Get("RateLimit-Policy"), w.Header.Get("Content-Type"))
	}
	// Output:
	// 200 "2-per-hour";q=2;w=3600 text/plain; charset=utf-8
	// 200 "2-per-hour";q=2;w=3600 text/plain; charset=utf-8
	// 429 "2-per-hour";q=2;w=3600 application/problem+json
}

// Retry-After and the RateLimit fields are set already, and so is the status.
func ExampleWithDeny() {
	app := fiber.New()
	app.Use(fiberlimit.New(core.PerHour(1), core.ByIP(),
		fiberlimit.WithDeny(func(c fiber.Ctx, d core.Decision) error {
			return c.JSON(fiber.Map{"limit": d.Violated, "wait": d.RetryAfter.Round(time.Hour).String()})
		}),
	))
	app.Get("/", hello)

	show(app, "/")
	show(app, "/")
	// Output:
	// / 200 Hello!
	// / 429 {"limit":["1-per-hour"],"wait":"1h0m0s"}
}

const limits = `
rules:
- name: login
  match: {path: /login}
  key: ip
  limits: [1/minute]
- name: rest
  key: ip
  limits: [100/minute]
`

// The limits are rules of a file.
func ExampleRules() {
	set, err := rules.Parse([]byte(limits), "limits.yaml") // rules.Load reads a file
	if err != nil {
		fmt.Println(err)
		return
	}
	app := fiber.New()
	app.Use(fiberlimit.Rules(set))
	app.Get("/*", func(c fiber.Ctx) error { return c.SendStatus(http.StatusOK) })
	for _, path := range []string{"/login", "/login", "/"} {
		response, err := app.Test(httptest.NewRequest(http.MethodGet, path, nil), fiber.TestConfig{})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(path, response.StatusCode)
	}
	// Output:
	// /login 200
	// /login 429
	// / 200
}

// A page for support tells which rules apply to a request, and what they have left.
func ExampleExplain() {
	set, err := rules.Parse([]byte(limits), "limits.yaml")
	if err != nil {
		fmt.Println(err)
		return
	}
	app := fiber.New()
	app.Get("/*", func(c fiber.Ctx) error {
		for _, rule := range fiberlimit.Explain(set, c).Rules {
			fmt.Println(rule.Name, rule.Applies, rule.Reason)
		}
		return c.SendStatus(http.StatusOK)
	})
	if _, err := app.Test(httptest.NewRequest(http.MethodGet, "/", nil), fiber.TestConfig{}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// login false match.path: the request's path does not match /login
	// rest true
}
