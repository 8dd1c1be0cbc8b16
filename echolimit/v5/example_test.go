package echolimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/echolimit/v5"
)

// show prints how h answers a request for path. Requests of httptest.NewRequest come from 192.0.2.1.
func show(h http.Handler, path string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	fmt.Println(path, w.Code, w.Body)
}

func hello(c *echo.Context) error { return c.String(http.StatusOK, "Hello!") }

// Each client address may send two requests in any hour.
func ExampleNew() {
	e := echo.New()
	e.Use(echolimit.New(core.PerHour(2), core.ByIP()))
	e.GET("/", hello)

	for range 3 {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"), w.Header().Get("Content-Type"))
	}
	// Output:
	// 200 "2-per-hour";q=2;w=3600 text/plain; charset=UTF-8
	// 200 "2-per-hour";q=2;w=3600 text/plain; charset=UTF-8
	// 429 "2-per-hour";q=2;w=3600 application/problem+json
}

// Retry-After and the RateLimit fields are set already.
func ExampleWithDeny() {
	e := echo.New()
	e.Use(echolimit.New(core.PerHour(1), core.ByIP(),
		echolimit.WithDeny(func(c *echo.Context, d core.Decision) error {
			wait := d.RetryAfter.Round(time.Hour)
			return c.String(http.StatusTooManyRequests, fmt.Sprintf("%s: wait for %v", d.Violated[0], wait))
		}),
	))
	e.GET("/", hello)

	show(e, "/")
	show(e, "/")
	// Output:
	// / 200 Hello!
	// / 429 1-per-hour: wait for 1h0m0s
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
