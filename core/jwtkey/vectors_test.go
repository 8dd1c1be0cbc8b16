package jwtkey_test

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/valyala/fasthttp"

	"github.com/sashlimit/sash/chilimit"
	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/jwtkey"
	"github.com/sashlimit/sash/echolimit"
	"github.com/sashlimit/sash/fiberlimit"
	"github.com/sashlimit/sash/ginlimit"
	"github.com/sashlimit/sash/nethttp"
)

func init() { gin.SetMode(gin.TestMode) }

// frameworks mount a limiter in front of a handler that answers with what Claims tells it, of the request and of its
// context.
var frameworks = map[string]func(*core.Limiter) func(*http.Request) *httptest.ResponseRecorder{
	"nethttp": func(l *core.Limiter) func(*http.Request) *httptest.ResponseRecorder {
		return recorded(nethttp.From(l)(http.HandlerFunc(answerClaims)))
	},
	"chi": func(l *core.Limiter) func(*http.Request) *httptest.ResponseRecorder {
		r := chi.NewRouter()
		r.Use(chilimit.From(l))
		r.Get("/", answerClaims)
		return recorded(r)
	},
	"gin": func(l *core.Limiter) func(*http.Request) *httptest.ResponseRecorder {
		r := gin.New()
		r.Use(ginlimit.From(l))
		r.GET("/", func(c *gin.Context) { c.String(200, told(c)+" "+told(c.Request.Context())) })
		return recorded(r)
	},
	"echo": func(l *core.Limiter) func(*http.Request) *httptest.ResponseRecorder {
		e := echo.New()
		e.Use(echolimit.From(l))
		e.GET("/", func(c echo.Context) error { return c.String(200, told(c)+" "+told(c.Request().Context())) })
		return recorded(e)
	},
	"fiber": func(l *core.Limiter) func(*http.Request) *httptest.ResponseRecorder {
		app := fiber.New()
		app.Use(fiberlimit.From(l))
		app.Get("/", func(c *fiber.Ctx) error { return c.SendString(told(c) + " " + told(c.UserContext())) })
		serve := app.Handler()
		return func(r *http.Request) *httptest.ResponseRecorder {
			var request fasthttp.Request
			request.SetRequestURI(r.URL.Path)
			for name, values := range r.Header {
				for _, v := range values {
					request.Header.Add(name, v)
				}
			}
			var ctx fasthttp.RequestCtx
			ctx.Init(&request, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(r.RemoteAddr)), nil)
			serve(&ctx)
			w := httptest.NewRecorder()
			ctx.Response.Header.VisitAll(func(name, value []byte) { w.Header().Add(string(name), string(value)) })
			w.WriteHeader(ctx.Response.StatusCode())
			w.Write(ctx.Response.Body())
			return w
		}
	},
}

func recorded(h http.Handler) func(*http.Request) *httptest.ResponseRecorder {
	return func(r *http.Request) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
}

// statuses mounts a limiter in a framework, and gives a request's status.
func statuses(framework string) func(*core.Limiter) func(*http.Request) int {
	return func(l *core.Limiter) func(*http.Request) int {
		send := frameworks[framework](l)
		return func(r *http.Request) int { return send(r).Code }
	}
}

// inEach runs a test in all frameworks.
func inEach(t *testing.T, test func(*testing.T, func(*core.Limiter) func(*http.Request) int)) {
	for _, name := range slices.Sorted(maps.Keys(frameworks)) {
		t.Run(name, func(t *testing.T) { test(t, statuses(name)) })
	}
}

// from returns a request from addr with header lines as name, value, name, value.
func from(addr string, header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = addr + ":4711"
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// limiter returns a limiter of one request an hour.
func limiter(t testing.TB, k core.Key, opts ...core.Option) *core.Limiter {
	t.Helper()
	l, err := core.New(core.PerHour(1), k, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

type vector struct {
	ID, Desc, Config string
	Claim            []string
	Authorization    []string
	Want             string
}

func (v *vector) request(addr string) *http.Request {
	r := from(addr)
	r.Header["Authorization"] = v.Authorization
	return r
}

func (v *vector) key(configs map[string]jwtkey.Config) core.Key {
	cfg, last := configs[v.Config], len(v.Claim)-1
	cfg.Path = v.Claim[:last]
	return jwtkey.ByClaim(v.Claim[last], cfg)
}

func readVectors(t testing.TB) (configs map[string]jwtkey.Config, vectors []vector) {
	t.Helper()
	text, err := os.ReadFile("testdata/jwt.json")
	if err != nil {
		t.Fatal(err)
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
		cfg := jwtkey.Config{Methods: c.Methods, Issuer: []string{c.Issuer}, Audience: []string{c.Audience}}
		if c.Secret != "" {
			cfg.Key = []byte(c.Secret)
		}
		if c.PublicKey != "" {
			block, _ := pem.Decode([]byte(c.PublicKey))
			if cfg.Key, err = x509.ParsePKIXPublicKey(block.Bytes); err != nil {
				t.Fatal(err)
			}
		}
		for kid, key := range c.Keys {
			cfg.Keys = map[string]any{kid: []byte(key)}
		}
		configs[name] = cfg
	}
	if len(file.Vectors) != 42 {
		t.Fatalf("%d vectors, want 42", len(file.Vectors))
	}
	return configs, file.Vectors
}

// TestVectors checks which requests share a quota of one. Each address is used for one vector only.
func TestVectors(t *testing.T) {
	configs, vectors := readVectors(t)
	inEach(t, func(t *testing.T, serve func(*core.Limiter) func(*http.Request) int) {
		for i, v := range vectors {
			t.Run(v.ID, func(t *testing.T) {
				send := serve(limiter(t, core.First(v.key(configs), core.ByIP())))
				check := func(desc string, r *http.Request, want int) {
					t.Helper()
					if got := send(r); got != want {
						t.Errorf("%s: %s: status %d, want %d", v.Desc, desc, got, want)
					}
				}
				const addr, other = "203.0.113.9", "198.51.100.7"
				want, either := strings.CutSuffix(v.Want, "|invalid")
				if either {
					// The same identity, or none; but not a new one.
					want = "invalid"
					check("an older token of that identity", vectors[0].request(other), http.StatusOK)
					if send(v.request(other)) == http.StatusTooManyRequests {
						check("the address, untouched", from(other), http.StatusOK)
						return
					}
				}
				if want == "invalid" || want == "invalid-claim" {
					check("first", v.request(addr), http.StatusOK)
					check("again", v.request(addr), http.StatusTooManyRequests)
					check("its address without a token", from(addr), http.StatusTooManyRequests)
					check("from another address", v.request("192.0.2.254"), http.StatusOK)
					return
				}
				check("first", v.request(addr), http.StatusOK)
				check("again", v.request(addr), http.StatusTooManyRequests)
				check("from another address", v.request(other), http.StatusTooManyRequests)
				check("its address without a token", from(addr), http.StatusOK)
				// Of the vectors with the same configuration, those with the same identity share, and others do not.
				seen := map[string]bool{v.Want: true}
				for j, o := range vectors {
					if i == j || o.Config != v.Config || !slices.Equal(o.Claim, v.Claim) ||
						!strings.HasPrefix(o.Want, "key:") || strings.Contains(o.Want, "|") {
						continue
					}
					status := http.StatusOK
					if seen[o.Want] {
						status = http.StatusTooManyRequests
					}
					seen[o.Want] = true
					check("as "+o.ID, o.request(other), status)
				}
			})
		}
	})
}

// TestVectorTexts compares a vector's key with that of a token whose claim is the expected text.
func TestVectorTexts(t *testing.T) {
	configs, vectors := readVectors(t)
	for _, v := range vectors {
		want, ok := strings.CutPrefix(v.Want, "key:")
		if !ok || strings.Contains(want, "|") || len(v.Claim) > 1 {
			continue
		}
		cfg := configs["hs256"]
		text := sign(t, "HS256", secret, claims{v.Claim[0]: want})
		l := limiter(t, core.First(v.key(configs), jwtkey.ByClaim(v.Claim[0], cfg)))
		send := statuses("nethttp")(l)
		got := []int{send(v.request("203.0.113.9")), send(from("203.0.113.9", "Authorization", "Bearer "+text))}
		if fmt.Sprint(got) != "[200 429]" {
			t.Errorf("%s %s: status %d, want 200 and 429 for a token of %q", v.ID, v.Desc, got, want)
		}
	}
}
