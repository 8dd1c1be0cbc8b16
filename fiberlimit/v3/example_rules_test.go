package fiberlimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gofiber/fiber/v3"

	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/fiberlimit/v3"
)

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
		response, err := app.Test(httptest.NewRequest(http.MethodGet, path, nil))
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
	if _, err := app.Test(httptest.NewRequest(http.MethodGet, "/", nil)); err != nil {
		fmt.Println(err)
	}
	// Output:
	// login false match.path: the request's path does not match /login
	// rest true
}
