package echolimit_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/labstack/echo/v5"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/jwtkey"
	"github.com/sashlimit/sash/echolimit/v5"
)

// What a key has verified is there for LimitBy and handlers.
func TestClaims(t *testing.T) {
	secret := []byte("an-hs256-test-secret-of-32-bytes")
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "ann", "plan": "pro"}).
		SignedString(secret)
	if err != nil {
		t.Fatal(err)
	}
	e := echo.New()
	e.Use(echolimit.New(core.LimitBy(func(c *echo.Context) core.Limits {
		if claims, ok := jwtkey.Claims(c); ok && claims["plan"] == "pro" {
			return core.Limits{core.PerHour(3)}
		}
		return core.Limits{core.PerHour(1)}
	}), core.First(jwtkey.ByClaim("sub", jwtkey.Config{Methods: []string{"HS256"}, Key: secret}), core.ByIP())))
	e.GET("/", func(c *echo.Context) error {
		claims, ok := jwtkey.Claims(c)
		return c.String(http.StatusOK, fmt.Sprint(claims["sub"], ok))
	})
	for header, want := range map[string]string{
		"Bearer " + token: "anntrue 3-per-hour", "Bearer x": "<nil> false 1-per-hour",
	} {
		w := get(e, "/", "Authorization", header)
		name, _, _ := strings.Cut(strings.Trim(w.Header().Get("RateLimit-Policy"), `"`), `"`)
		if got := w.Body.String() + " " + name; got != want {
			t.Errorf("%s: %s, want %s", header, got, want)
		}
	}
}
