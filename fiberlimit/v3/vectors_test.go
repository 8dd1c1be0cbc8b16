package fiberlimit_test

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/golang-jwt/jwt/v5"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/jwtkey"
	"github.com/sashlimit/sash/fiberlimit/v3"
)

type vector struct {
	ID, Desc, Config string
	Claim            []string
	Authorization    []string
	Want             string
}

// request returns a request with the vector's token.
func (v *vector) request(address string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = address + ":4711"
	r.Header["Authorization"] = v.Authorization
	return r
}

// isIdentity reports whether the vector has one that may be compared with others.
func (v *vector) isIdentity() bool {
	return strings.HasPrefix(v.Want, "key:") && !strings.Contains(v.Want, "|")
}

// readVectors reads the file that package jwtkey is tested with.
func readVectors(t *testing.T) (configs map[string]jwtkey.Config, vectors []vector) {
	t.Helper()
	text, err := os.ReadFile("../../core/jwtkey/testdata/jwt.json")
	if err != nil {
		t.Skipf("this is not sash's repository: %v", err)
	}
	var file struct {
		Configs map[string]struct {
			Audience, Issuer, Secret string
			Methods                  []string
			PublicKey                string            `json:"public_key_pem"`
			Keys                     map[string]string `json:"keys_by_kid"`
		}
		Vectors []vector
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	configs = map[string]jwtkey.Config{}
	for name, c := range file.Configs {
		config := jwtkey.Config{Methods: c.Methods, Issuer: []string{c.Issuer}, Audience: []string{c.Audience}}
		if c.Secret != "" {
			config.Key = []byte(c.Secret)
		}
		if c.PublicKey != "" {
			block, _ := pem.Decode([]byte(c.PublicKey))
			if config.Key, err = x509.ParsePKIXPublicKey(block.Bytes); err != nil {
				t.Fatal(err)
			}
		}
		for kid, key := range c.Keys {
			config.Keys = map[string]any{kid: []byte(key)}
		}
		configs[name] = config
	}
	return configs, file.Vectors
}

// Requests share a quota of one if their tokens have the same identity, and nobody chooses it without a valid token.
// Each address is used for one vector only. Package jwtkey has more of these tests.
func TestVectors(t *testing.T) {
	configs, vectors := readVectors(t)
	for _, v := range vectors {
		config, last := configs[v.Config], len(v.Claim)-1
		config.Path = v.Claim[:last]
		l, err := core.New(core.PerHour(1), core.First(jwtkey.ByClaim(v.Claim[last], config), core.ByIP()))
		if err != nil {
			t.Fatal(err)
		}
		send := direct(t, func() string { return "" }, l)
		check := func(desc string, r *http.Request, want int) {
			t.Helper()
			if status := send(r).StatusCode; status != want {
				t.Errorf("%s %s: %s: status %d, want %d", v.ID, v.Desc, desc, status, want)
			}
		}
		const address, other = "203.0.113.9", "198.51.100.7"
		check("first", v.request(address), 200)
		check("again", v.request(address), 429)
		switch {
		case v.isIdentity():
			check("from another address", v.request(other), 429)
			check("its address without a token", new(vector).request(address), 200)
			seen := []string{v.Want}
			for _, o := range vectors {
				if o.Config != v.Config || !slices.Equal(o.Claim, v.Claim) || !o.isIdentity() {
					continue
				}
				status := 200
				if slices.Contains(seen, o.Want) {
					status = 429
				}
				seen = append(seen, o.Want)
				check("as "+o.ID, o.request(other), status)
			}
		case !strings.Contains(v.Want, "|"):
			check("its address without a token", new(vector).request(address), 429)
			check("from another address", v.request(other), 200)
		}
	}
}

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
