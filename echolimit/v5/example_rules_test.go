package echolimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v5"

	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/echolimit/v5"
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
	e := echo.New()
	e.Use(echolimit.Rules(set))
	e.GET("/*", func(c *echo.Context) error { return c.NoContent(http.StatusOK) })
	for _, path := range []string{"/login", "/login", "/"} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Println(path, w.Code)
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
	e := echo.New()
	e.GET("/*", func(c *echo.Context) error {
		for _, rule := range echolimit.Explain(set, c).Rules {
			fmt.Println(rule.Name, rule.Applies, rule.Reason)
		}
		return c.NoContent(http.StatusOK)
	})
	e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	// Output:
	// login false match.path: the request's path does not match /login
	// rest true
}
