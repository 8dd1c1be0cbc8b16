package jwtkey_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/golang-jwt/jwt/v5"
	"github.com/labstack/echo/v4"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/jwtkey"
	"github.com/sashlimit/sash/core/rules"
	"github.com/sashlimit/sash/nethttp"
)

// planOf makes a limiter that takes the plan from the claims, and whose WithRefund notes what it sees of them.
func planOf[C any](k core.Key, refund *string) (*core.Limiter, error) {
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
	return core.New(byPlan, k, cost, core.WithRefund(func(c C, _ int) bool {
		*refund = told(c)
		return false
	}))
}

// told is who a handler takes a request for.
func told(request any) string {
	claims, ok := jwtkey.Claims(request)
	return fmt.Sprint(claims["sub"], " ", ok)
}

// plans are the makers of limiters for what the callbacks of a framework get.
var plans = map[string]func(core.Key, *string) (*core.Limiter, error){
	"nethttp": planOf[*http.Request], "chi": planOf[*http.Request], "context.Context": planOf[context.Context],
	"gin": planOf[*gin.Context], "echo": planOf[echo.Context], "fiber": planOf[*fiber.Ctx],
}

func answerClaims(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, told(r)+" "+told(r.Context()))
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
	for name, plan := range plans {
		var refund string
		l, err := plan(core.First(jwtkey.ByClaim("sub", cfg), core.ByIP()), &refund)
		if err != nil {
			t.Fatal(err)
		}
		mount := frameworks[name]
		if mount == nil {
			mount = frameworks["nethttp"]
		}
		send := mount(l)
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
			if policy := w.Header().Get("RateLimit-Policy"); w.Code != c.status || policy != c.policy {
				t.Errorf("%s %d: %s: status %d, %s", name, i, c.desc, w.Code, policy)
			}
			if c.status == 200 && (w.Body.String() != c.told+" "+c.told || refund != c.told) {
				t.Errorf("%s: %s: the handler sees %q, WithRefund %q, want %q", name, c.desc, w.Body, refund, c.told)
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
