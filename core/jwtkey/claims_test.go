package jwtkey_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v2"
	"github.com/golang-jwt/jwt/v5"
	"github.com/labstack/echo/v4"

	"github.com/sashlimit/sash/chilimit"
	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/jwtkey"
	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/echolimit"
	"github.com/sashlimit/sash/fiberlimit"
	"github.com/sashlimit/sash/ginlimit"
	"github.com/sashlimit/sash/nethttp"
)

// planOf is a policy that takes the plan from the claims, and an option whose callback notes what it sees of them.
func planOf[C any](k core.Key, refund *string) (core.Policy, core.Key, core.Option, core.Option) {
	byPlan := core.LimitBy(func(c C) core.Limits {
		if claims, ok := jwtkey.Claims(c); ok && claims["plan"] == "pro" {
			return core.Limits{core.PerHour(3)}
		}
		return core.Limits{core.PerHour(1)}
	})
	cost := core.WithCost(func(c C) int {
		if claims, _ := jwtkey.Claims(c); claims["heavy"] == true {
			return 2
		}
		return 1
	})
	return byPlan, k, cost, core.WithRefund(func(c C, _ int) bool {
		*refund = told(c)
		return false
	})
}

// told is who a handler takes a request for.
func told(request any) string {
	claims, ok := jwtkey.Claims(request)
	return fmt.Sprint(claims["sub"], " ", ok)
}

// claimServers have the limiter of a key in front of a handler that answers with what Claims tells it, of the request
// and of its context.
var claimServers = map[string]func(k core.Key, refund *string) func(*http.Request) *http.Response{
	"nethttp": func(k core.Key, refund *string) func(*http.Request) *http.Response {
		return recorded(nethttp.New(planOf[*http.Request](k, refund))(http.HandlerFunc(answerClaims)))
	},
	"chi": func(k core.Key, refund *string) func(*http.Request) *http.Response {
		r := chi.NewRouter()
		r.Use(chilimit.New(planOf[*http.Request](k, refund)))
		r.Get("/", answerClaims)
		return recorded(r)
	},
	"context.Context": func(k core.Key, refund *string) func(*http.Request) *http.Response {
		return recorded(nethttp.New(planOf[context.Context](k, refund))(http.HandlerFunc(answerClaims)))
	},
	"gin": func(k core.Key, refund *string) func(*http.Request) *http.Response {
		r := gin.New()
		r.Use(ginlimit.New(planOf[*gin.Context](k, refund)))
		r.GET("/", func(c *gin.Context) { c.String(200, told(c)+" "+told(c.Request.Context())) })
		return recorded(r)
	},
	"echo": func(k core.Key, refund *string) func(*http.Request) *http.Response {
		e := echo.New()
		e.Use(echolimit.New(planOf[echo.Context](k, refund)))
		e.GET("/", func(c echo.Context) error { return c.String(200, told(c)+" "+told(c.Request().Context())) })
		return recorded(e)
	},
	"fiber": func(k core.Key, refund *string) func(*http.Request) *http.Response {
		app := fiber.New()
		app.Use(fiberlimit.New(planOf[*fiber.Ctx](k, refund)))
		app.Get("/", func(c *fiber.Ctx) error { return c.SendString(told(c) + " " + told(c.UserContext())) })
		return func(r *http.Request) *http.Response {
			w, err := app.Test(r, -1)
			if err != nil {
				panic(err)
			}
			return w
		}
	},
}

func answerClaims(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, told(r)+" "+told(r.Context()))
}

func recorded(h http.Handler) func(*http.Request) *http.Response {
	return func(r *http.Request) *http.Response {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
}

// What a key has verified is there for LimitBy, WithCost, WithRefund and handlers, and nothing else is.
func TestClaims(t *testing.T) {
	cfg := jwtkey.Config{Methods: []string{"HS256"}, Key: secret}
	pro := sign(t, "HS256", secret, claims{"sub": "ann", "plan": "pro"})
	heavy := sign(t, "HS256", secret, claims{"sub": "eve", "plan": "pro", "heavy": true})
	free := sign(t, "HS256", secret, claims{"sub": "bob", "plan": "free"})
	forged := sign(t, "HS256", []byte("another-hs256-secret-of-32-bytes"), claims{"sub": "ann", "plan": "pro"})
	anonymous := sign(t, "HS256", secret, claims{"plan": "pro"})
	const nobody = "<nil> false"
	for name, server := range claimServers {
		var refund string
		send := server(core.First(jwtkey.ByClaim("sub", cfg), core.ByIP()), &refund)
		for i, c := range []struct {
			desc, token string
			status      int
			policy      string
			told        string
		}{
			{"pro", pro, 200, `"3-per-hour";q=3;w=3600`, "ann true"},
			{"free", free, 200, `"1-per-hour";q=1;w=3600`, "bob true"},
			{"free again", free, 429, `"1-per-hour";q=1;w=3600`, ""},
			{"pro again", pro, 200, `"3-per-hour";q=3;w=3600`, "ann true"},
			{"heavy", heavy, 200, `"3-per-hour";q=3;w=3600`, "eve true"},
			{"too heavy", heavy, 429, `"3-per-hour";q=3;w=3600`, ""},
			{"forged", forged, 200, `"1-per-hour";q=1;w=3600`, nobody},
			{"no token", "", 429, `"1-per-hour";q=1;w=3600`, ""},
			{"a verified token that names nobody", anonymous, 200, `"3-per-hour";q=3;w=3600`, "<nil> true"},
		} {
			refund = ""
			r := from("192.0.2.1")
			if c.token != "" {
				r.Header.Set("Authorization", "Bearer "+c.token)
			}
			w := send(r)
			body, _ := io.ReadAll(w.Body)
			w.Body.Close()
			if w.StatusCode != c.status || w.Header.Get("RateLimit-Policy") != c.policy {
				t.Errorf("%s %d: %s: status %d, %s", name, i, c.desc, w.StatusCode, w.Header.Get("RateLimit-Policy"))
			}
			if c.status == 200 && (string(body) != c.told+" "+c.told || refund != c.told) {
				t.Errorf("%s: %s: the handler sees %q, WithRefund %q, want %q", name, c.desc, body, refund, c.told)
			}
			if _, ok := jwtkey.Claims(r); ok {
				t.Errorf("%s: %s: middleware in front of the limiter sees claims", name, c.desc)
			}
		}
	}
}

// Of several keys, the last one's claims are returned: each limiter's LimitBy gets those of its own key.
func TestClaimsOfSeveralKeys(t *testing.T) {
	cfg := jwtkey.Config{Methods: []string{"HS256"}, Key: secret}
	other := cfg
	other.Header = "X-Other"
	var seen []string
	limit := func(name string, k core.Key) func(http.Handler) http.Handler {
		return nethttp.New(core.LimitBy(func(r *http.Request) core.Limits {
			seen = append(seen, told(r))
			return core.Limits{core.PerHour(9)}
		}), k, core.WithName(name))
	}
	inner := limit("b", jwtkey.ByClaim("sub", other))(http.HandlerFunc(answerClaims))
	h := limit("a", jwtkey.ByClaim("sub", cfg))(inner)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, from("192.0.2.1", "Authorization", "Bearer "+sign(t, "HS256", secret, claims{"sub": "ann"}),
		"X-Other", sign(t, "HS256", secret, claims{"sub": "bob"})))
	if got := fmt.Sprint(seen); got != "[ann true bob true]" || w.Body.String() != "bob true bob true" {
		t.Errorf("LimitBy sees %s, the handler %s", got, w.Body)
	}
}

// What middleware has verified is there as well, and so is what keys of lists, limits and rules have.
func TestClaimsOfOtherKeys(t *testing.T) {
	cfg := jwtkey.Config{Methods: []string{"HS256"}, Key: secret}
	token := sign(t, "HS256", secret, claims{"sub": "ann"})
	set, err := rules.Parse([]byte("rules:\n- {name: a, key: {claim: sub}, limits: [9/day]}\n"), "limits.yaml",
		rules.WithClaims(func(claim string) core.Key { return jwtkey.ByClaim(claim, cfg) }))
	if err != nil {
		t.Fatal(err)
	}
	type key struct{}
	left := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			verified := &jwt.Token{Valid: true, Claims: jwt.MapClaims{"sub": "ann"}}
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), key{}, verified)))
		})
	}
	byContext := nethttp.New(core.PerHour(9), jwtkey.ByContextClaim(key{}, "sub"))
	ofLimit := core.PerHour(8).By(jwtkey.ByClaim("sub", cfg))
	for desc, limit := range map[string]func(http.Handler) http.Handler{
		"the middleware's": func(next http.Handler) http.Handler { return left(byContext(next)) },
		"a list": nethttp.New(core.PerHour(9), core.ByIP(),
			core.WithDenyList(jwtkey.ByClaim("sub", cfg), "mallory")),
		"a limit": nethttp.New(core.Limits{core.PerHour(9), ofLimit}, core.ByIP()),
		"a rule":  nethttp.Rules(set),
	} {
		w := httptest.NewRecorder()
		limit(http.HandlerFunc(answerClaims)).ServeHTTP(w, from("192.0.2.1", "Authorization", "Bearer "+token))
		if w.Code != 200 || w.Body.String() != "ann true ann true" {
			t.Errorf("%s: status %d, %s", desc, w.Code, w.Body)
		}
	}
}

func TestClaimsOfNothing(t *testing.T) {
	for _, request := range []any{nil, "", 7, struct{ Request string }{}, new(gin.Context), t.Context()} {
		if claims, ok := jwtkey.Claims(request); ok || claims != nil {
			t.Errorf("%T has %v", request, claims)
		}
	}
}
