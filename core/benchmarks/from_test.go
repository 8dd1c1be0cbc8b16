package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/didip/tollbooth/v7"
	_ "github.com/go-chi/chi/v5/middleware" // which a block of docs/from has
	"github.com/go-chi/httprate"
	"github.com/gofiber/fiber/v2"
	fiberlimiter "github.com/gofiber/fiber/v2/middleware/limiter"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"
)

// get sends a request for /a to a handler, after edits.
func get(h http.Handler, edits ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/a", nil)
	for _, edit := range edits {
		edit(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// second answers the second of two requests.
func second(h http.Handler) *httptest.ResponseRecorder {
	get(h)
	return get(h)
}

// forged returns the statuses of three requests at a quota of one, each with another X-Forwarded-For.
func forged(h http.Handler) (statuses []int) {
	for i := range 3 {
		w := get(h, func(r *http.Request) { r.Header.Set("X-Forwarded-For", fmt.Sprintf("6.6.6.%d", i)) })
		statuses = append(statuses, w.Code)
	}
	return statuses
}

func ululeOnHTTP() http.Handler {
	l := ulule.New(memory.NewStore(), ulule.Rate{Limit: 1, Period: time.Minute}, ulule.WithTrustForwardHeader(true))
	return stdlib.NewMiddleware(l).Handler(answer)
}

func tollboothOnHTTP() http.Handler {
	return tollbooth.LimitHandler(tollbooth.NewLimiter(1, nil), answer)
}

func echoOnHTTP() http.Handler {
	e := echo.New()
	e.Use(middleware.RateLimiter(middleware.NewRateLimiterMemoryStore(1)))
	e.GET("/a", func(c echo.Context) error { return c.NoContent(http.StatusOK) })
	return e
}

func newThrottled(keys int, quota throttled.RateQuota) *throttled.GCRARateLimiterCtx {
	store, err := memstore.NewCtx(keys)
	if err != nil {
		panic(err)
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, quota)
	if err != nil {
		panic(err)
	}
	return l
}

func throttledOf(keys int, quota throttled.RateQuota) func(key string) (allowed bool) {
	l := newThrottled(keys, quota)
	return func(key string) bool {
		limited, _, err := l.RateLimitCtx(context.Background(), key, 1)
		return err == nil && !limited
	}
}

// TestDifferences has what the pages of docs/from say of other limiters: that the page says it, and that it is so.
func TestDifferences(t *testing.T) {
	all := []int{200, 200, 200}
	for _, c := range []struct {
		page, says string
		is         func() bool
	}{
		{"ulule-limiter", "takes the first address of X-Forwarded-For, which clients write themselves", func() bool {
			return slices.Equal(forged(ululeOnHTTP()), all)
		}},
		{"ulule-limiter", "`X-RateLimit-Reset` is an instant in Unix time there", func() bool {
			reset := get(ululeOnHTTP()).Header().Get("X-RateLimit-Reset")
			return reset > fmt.Sprint(time.Now().Unix())
		}},
		{"ulule-limiter", "**The body of a denial** is `Limit exceeded` there", func() bool {
			w := second(ululeOnHTTP())
			return w.Code == 429 && strings.TrimSpace(w.Body.String()) == "Limit exceeded"
		}},
		{"httprate", "are answered with 428 and their text there", func() bool {
			key := func(*http.Request) (string, error) { return "", errors.New("a secret") }
			w := get(httprate.LimitBy(1, time.Minute, key)(answer))
			return w.Code == 428 && strings.Contains(w.Body.String(), "a secret")
		}},
		{"httprate", "**`Retry-After`** is the whole window there", func() bool {
			h := httprate.LimitBy(1, time.Minute, httprate.KeyByEndpoint)(answer)
			return second(h).Header().Get("Retry-After") == "60"
		}},
		{"httprate", "**The body of a denial** is `Too Many Requests` there", func() bool {
			w := second(httprate.LimitBy(1, time.Minute, httprate.KeyByEndpoint)(answer))
			return w.Code == 429 && strings.TrimSpace(w.Body.String()) == "Too Many Requests"
		}},
		{"httprate", "**Header fields** are `X-RateLimit-*` there", func() bool {
			header := get(httprate.LimitBy(1, time.Minute, httprate.KeyByEndpoint)(answer)).Header()
			return header.Get("X-RateLimit-Limit") == "1" && header.Get("RateLimit") == ""
		}},
		{"throttled", "the burst is one more than `MaxBurst`", func() bool {
			allow := throttledOf(0, throttled.RateQuota{MaxRate: throttled.PerDay(20), MaxBurst: 5})
			burst := 0
			for allow("k") {
				burst++
			}
			return burst == 6
		}},
		{"throttled", "`memstore` evicts live keys, whose quota is then unused", func() bool {
			allow := throttledOf(2, throttled.RateQuota{MaxRate: throttled.PerDay(1)})
			used := allow("k") && !allow("k")
			allow("a")
			allow("b")
			return used && allow("k")
		}},
		{"throttled", "**A quantity above the burst** is denied there, with a `RetryAfter` of -1", func() bool {
			limited, result, err := newThrottled(0, throttled.RateQuota{MaxRate: throttled.PerMin(20), MaxBurst: 5}).
				RateLimitCtx(context.Background(), "k", 7)
			return limited && result.RetryAfter == -1 && err == nil
		}},
		{"throttled", "Reset is the time until the whole burst is back there", func() bool {
			limiter := newThrottled(0, throttled.RateQuota{MaxRate: throttled.PerMin(20), MaxBurst: 5})
			_, result, err := limiter.RateLimitCtx(context.Background(), "k", 6)
			return result.ResetAfter.Round(time.Second) == 18*time.Second && err == nil
		}},
		{"throttled", "**A header that is missing** is an empty part of the key there", func() bool {
			limit := throttled.HTTPRateLimiterCtx{
				RateLimiter: newThrottled(0, throttled.RateQuota{MaxRate: throttled.PerMin(1)}),
				VaryBy:      &throttled.VaryBy{Headers: []string{"X-API-Key"}},
			}
			h := limit.RateLimit(answer)
			return get(h).Code == 200 && get(h).Code == 429
		}},
		{"tollbooth", "`NewLimiter` looks at X-Forwarded-For first by default", func() bool {
			return slices.Equal(forged(tollboothOnHTTP()), all)
		}},
		{"tollbooth", "limits each client at each path by default", func() bool {
			h := tollboothOnHTTP()
			return second(h).Code == 429 && get(h, func(r *http.Request) { r.URL.Path = "/b" }).Code == 200
		}},
		{"tollbooth", "a request without one passes unlimited there", func() bool {
			h := tollboothOnHTTP()
			anonymous := func(r *http.Request) { r.RemoteAddr = "" }
			get(h, anonymous)
			return get(h, anonymous).Code == 200
		}},
		{"tollbooth", "**`Retry-After`** is not sent there", func() bool {
			w := second(tollboothOnHTTP())
			return w.Code == 429 && w.Header().Get("Retry-After") == ""
		}},
		{"tollbooth", "**A header value that is not listed**, or none, passes unlimited there", func() bool {
			lmt := tollbooth.NewLimiter(1, nil).SetHeader("X-Access-Token", []string{"listed"})
			h := tollbooth.LimitHandler(lmt, answer)
			with := func(token string) (statuses []int) {
				for range 3 {
					w := get(h, func(r *http.Request) { r.Header.Set("X-Access-Token", token) })
					statuses = append(statuses, w.Code)
				}
				return statuses
			}
			return slices.Equal(with("other"), all) && slices.Equal(with(""), all) && !slices.Equal(with("listed"), all)
		}},
		{"fiber-limiter", "An error that a handler returns has not been written by then, so its status is 200",
			func() bool {
				app := fiber.New()
				app.Use(fiberlimiter.New(fiberlimiter.Config{Max: 1, SkipFailedRequests: true}))
				app.Get("/sent", func(c *fiber.Ctx) error { return c.SendStatus(401) })
				app.Get("/returned", func(*fiber.Ctx) error { return fiber.ErrUnauthorized })
				var statuses []int
				for _, path := range []string{"/sent", "/sent", "/returned", "/returned"} {
					w, err := app.Test(httptest.NewRequest(http.MethodGet, path, nil), -1)
					if err != nil {
						return false
					}
					w.Body.Close()
					statuses = append(statuses, w.StatusCode)
				}
				return slices.Equal(statuses, []int{401, 401, 401, 429})
			}},
		{"echo-limiter", "reads header fields of the client unless `IPExtractor` is set", func() bool {
			return slices.Equal(forged(echoOnHTTP()), all)
		}},
		{"echo-limiter", "none there, so clients do not know how long to wait", func() bool {
			w := second(echoOnHTTP())
			return w.Code == 429 && w.Header().Get("Retry-After") == "" && w.Header().Get("X-RateLimit-Limit") == ""
		}},
		{"echo-limiter", "**A request without an identifier** gets status 403 there", func() bool {
			e := echo.New()
			e.Use(middleware.RateLimiterWithConfig(middleware.RateLimiterConfig{
				Store:               middleware.NewRateLimiterMemoryStore(1),
				IdentifierExtractor: func(echo.Context) (string, error) { return "", errors.New("none") },
			}))
			e.GET("/a", func(c echo.Context) error { return c.NoContent(http.StatusOK) })
			return get(e).Code == 403
		}},
	} {
		text, err := os.ReadFile("../../docs/from/" + c.page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(regexp.MustCompile(`\s+`).ReplaceAllString(string(text), " "), c.says) {
			t.Errorf("docs/from/%s.md does not say: %s", c.page, c.says)
		}
		if !c.is() {
			t.Errorf("docs/from/%s.md says what is not so: %s", c.page, c.says)
		}
	}
}
