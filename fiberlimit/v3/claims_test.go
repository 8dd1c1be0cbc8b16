package fiberlimit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/golang-jwt/jwt/v5"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/jwtkey"
	"github.com/sashlimit/sash/fiberlimit/v3"
)

// What a key has verified is there for LimitBy and handlers.
func TestClaims(t *testing.T) {
	secret := []byte("an-hs256-test-secret-of-32-bytes")
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "ann", "plan": "pro"}).
		SignedString(secret)
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	app.Use(fiberlimit.New(core.LimitBy(func(c fiber.Ctx) core.Limits {
		if claims, ok := jwtkey.Claims(c); ok && claims["plan"] == "pro" {
			return core.Limits{core.PerHour(3)}
		}
		return core.Limits{core.PerHour(1)}
	}), core.First(jwtkey.ByClaim("sub", jwtkey.Config{Methods: []string{"HS256"}, Key: secret}), core.ByIP())))
	app.Get("/", func(c fiber.Ctx) error {
		claims, ok := jwtkey.Claims(c)
		return c.SendString(fmt.Sprint(claims["sub"], ok))
	})
	for header, want := range map[string]string{
		"Bearer " + token: "anntrue 3-per-hour", "Bearer x": "<nil> false 1-per-hour",
	} {
		_, body, h := get(t, app, "/", "Authorization", header)
		name, _, _ := strings.Cut(strings.Trim(h.Get("RateLimit-Policy"), `"`), `"`)
		if got := body + " " + name; got != want {
			t.Errorf("%s: %s, want %s", header, got, want)
		}
	}
}
