package fiberlimit_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/fiberlimit"
)

// send sends a request through App.Test, whose requests come from 192.0.2.1. header is names and values.
func send(app *fiber.App, method, path string, header ...string) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w, err := app.Test(r, -1) // without a timeout
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

func hello(c *fiber.Ctx) error { return c.SendString("Hello!") }

// Each client address may send two requests in any hour.
func ExampleNew() {
	app := fiber.New()
	app.Use(fiberlimit.New(core.PerHour(2), core.ByIP()))
	app.Get("/", hello)

	for range 3 {
		w, err := app.Test(httptest.NewRequest(fiber.MethodGet, "/", nil), -1)
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

// Users that earlier middleware has authenticated have a quota of their own. All other requests count by address.
func ExampleNew_key() {
	app := fiber.New()
	app.Use(func(c *fiber.Ctx) error { // stands in for your authentication
		c.Locals("user", c.Query("user"))
		return c.Next()
	})
	user := func(c *fiber.Ctx) (string, error) {
		name, _ := c.Locals("user").(string)
		return name, nil // an empty string is no key
	}
	app.Use(fiberlimit.New(core.PerHour(1), core.First(core.By(user), core.ByIP())))
	app.Get("/", hello)

	for _, path := range []string{"/?user=ann", "/?user=bob", "/"} {
		show(app, path)
	}
	// Output:
	// /?user=ann 200 Hello!
	// /?user=bob 200 Hello!
	// / 200 Hello!
}

// Retry-After and the RateLimit fields are set already, and so is the status.
func ExampleWithDeny() {
	app := fiber.New()
	app.Use(fiberlimit.New(core.PerHour(1), core.ByIP(),
		fiberlimit.WithDeny(func(c *fiber.Ctx, d core.Decision) error {
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

// The error is for operators: do not send its text to clients.
func ExampleWithError() {
	app := fiber.New()
	app.Use(fiberlimit.New(core.PerHour(1), core.ByHeader("X-API-Key", core.Unverified),
		fiberlimit.WithError(func(c *fiber.Ctx, _ error) error { return c.SendString("send your X-API-Key") }),
	))
	app.Get("/", hello)

	show(app, "/")
	// Output:
	// / 400 send your X-API-Key
}

// Each client address has a quota for every route. The route is the pattern, so its parameters do not matter. fiber
// knows it where the limiter is mounted on the route itself, and not under Use.
func ExampleByRoute() {
	app := fiber.New()
	limit := fiberlimit.New(core.PerHour(1), core.Join(fiberlimit.ByRoute(), core.ByIP()),
		fiberlimit.WithDeny(func(c *fiber.Ctx, _ core.Decision) error { return c.SendString("slow down") }))
	app.Get("/users/:id", limit, hello)
	app.Get("/teams/:id", limit, hello)

	show(app, "/users/1")
	show(app, "/users/2")
	show(app, "/teams/1")
	// Output:
	// /users/1 200 Hello!
	// /users/2 429 slow down
	// /teams/1 200 Hello!
}

// The limiter of the middleware is also there for your own code, such as that which gives an address its quota back.
func ExampleFrom() {
	limiter, err := core.New(core.PerHour(1), core.ByIP(),
		fiberlimit.WithDeny(func(c *fiber.Ctx, _ core.Decision) error { return c.SendString("slow down") }))
	if err != nil {
		fmt.Println(err)
		return
	}
	app := fiber.New()
	app.Get("/", fiberlimit.From(limiter), hello)

	show(app, "/")
	show(app, "/")
	if err := limiter.Reset(context.Background(), "192.0.2.1"); err != nil {
		fmt.Println(err)
	}
	show(app, "/")
	// Output:
	// / 200 Hello!
	// / 429 slow down
	// / 200 Hello!
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
	app.Get("/*", func(c *fiber.Ctx) error { return c.SendStatus(http.StatusOK) })
	for _, path := range []string{"/login", "/login", "/"} {
		response, err := app.Test(httptest.NewRequest(http.MethodGet, path, nil), -1)
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
	app.Get("/*", func(c *fiber.Ctx) error {
		for _, rule := range fiberlimit.Explain(set, c).Rules {
			fmt.Println(rule.Name, rule.Applies, rule.Reason)
		}
		return c.SendStatus(http.StatusOK)
	})
	if _, err := app.Test(httptest.NewRequest(http.MethodGet, "/", nil), -1); err != nil {
		fmt.Println(err)
	}
	// Output:
	// login false match.path: the request's path does not match /login
	// rest true
}
