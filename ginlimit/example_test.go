package ginlimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/ginlimit"
)

// show prints how h answers a request for path. Requests of httptest.NewRequest come from 192.0.2.1.
func show(h http.Handler, path string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	fmt.Println(path, w.Code, w.Body)
}

func hello(c *gin.Context) { c.String(http.StatusOK, "Hello!") }

// Each client address may send two requests in any hour.
func ExampleNew() {
	r := gin.New()
	r.Use(ginlimit.New(core.PerHour(2), core.ByIP()))
	r.GET("/", hello)

	for range 3 {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"), w.Header().Get("Content-Type"))
	}
	// Output:
	// 200 "2-per-hour";q=2;w=3600 text/plain; charset=utf-8
	// 200 "2-per-hour";q=2;w=3600 text/plain; charset=utf-8
	// 429 "2-per-hour";q=2;w=3600 application/problem+json
}

// Users that earlier middleware has authenticated have a quota of their own. All other requests count by address.
func ExampleNew_key() {
	r := gin.New()
	r.Use(func(c *gin.Context) { // stands in for your authentication
		if name := c.Query("user"); name != "" {
			c.Set("user", name)
		}
	})
	user := func(c *gin.Context) (string, error) { return c.GetString("user"), nil } // an empty string is no key
	r.Use(ginlimit.New(core.PerHour(1), core.First(core.By(user), core.ByIP())))
	r.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "Hello %s!", c.DefaultQuery("user", "stranger")) })

	for _, path := range []string{"/?user=ann", "/?user=bob", "/"} {
		show(r, path)
	}
	// Output:
	// /?user=ann 200 Hello ann!
	// /?user=bob 200 Hello bob!
	// / 200 Hello stranger!
}

// Retry-After and the RateLimit fields are set already.
func ExampleWithDeny() {
	r := gin.New()
	r.Use(ginlimit.New(core.PerHour(1), core.ByIP(),
		ginlimit.WithDeny(func(c *gin.Context, d core.Decision) {
			wait := d.RetryAfter.Round(time.Hour).String()
			c.JSON(http.StatusTooManyRequests, gin.H{"limit": d.Violated, "wait": wait})
		}),
	))
	r.GET("/", hello)

	show(r, "/")
	show(r, "/")
	// Output:
	// / 200 Hello!
	// / 429 {"limit":["1-per-hour"],"wait":"1h0m0s"}
}

// The error is for operators: do not send its text to clients.
func ExampleWithError() {
	r := gin.New()
	r.Use(ginlimit.New(core.PerHour(1), core.ByHeader("X-API-Key", core.Unverified),
		ginlimit.WithError(func(c *gin.Context, err error) {
			c.JSON(core.ProblemOf(err).Status, gin.H{"error": "send your X-API-Key"})
		}),
	))
	r.GET("/", hello)

	show(r, "/")
	// Output:
	// / 400 {"error":"send your X-API-Key"}
}

// Each client address has a quota for every route. The route is the pattern, so its parameters do not matter.
func ExampleByRoute() {
	r := gin.New()
	r.Use(ginlimit.New(core.PerHour(1), core.Join(ginlimit.ByRoute(), core.ByIP()),
		ginlimit.WithDeny(func(c *gin.Context, _ core.Decision) { c.String(http.StatusTooManyRequests, "slow down") })))
	r.GET("/users/:id", hello)
	r.GET("/teams/:id", hello)

	show(r, "/users/1")
	show(r, "/users/2")
	show(r, "/teams/1")
	// Output:
	// /users/1 200 Hello!
	// /users/2 429 slow down
	// /teams/1 200 Hello!
}

// The limiter of the middleware is also there for your own code, such as that which gives an address its quota back.
func ExampleFrom() {
	limiter, err := core.New(core.PerHour(1), core.ByIP(),
		ginlimit.WithDeny(func(c *gin.Context, _ core.Decision) { c.String(http.StatusTooManyRequests, "slow down") }))
	if err != nil {
		fmt.Println(err)
		return
	}
	r := gin.New()
	r.GET("/", ginlimit.From(limiter), hello)

	show(r, "/")
	show(r, "/")
	if err := limiter.Reset(context.Background(), "192.0.2.1"); err != nil {
		fmt.Println(err)
	}
	show(r, "/")
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
	r := gin.New()
	r.Use(ginlimit.Rules(set))
	r.NoRoute(hello)
	for _, path := range []string{"/login", "/login", "/"} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
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
	r := gin.New()
	r.NoRoute(func(c *gin.Context) {
		for _, rule := range ginlimit.Explain(set, c).Rules {
			fmt.Println(rule.Name, rule.Applies, rule.Reason)
		}
	})
	r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	// Output:
	// login false match.path: the request's path does not match /login
	// rest true
}
