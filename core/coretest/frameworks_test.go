package coretest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v2"
	"github.com/golang-jwt/jwt/v5"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/chilimit"
	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/jwtkey"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/echolimit"
	"github.com/sashlimit/sash/fiberlimit"
	"github.com/sashlimit/sash/ginlimit"
	"github.com/sashlimit/sash/nethttp"
)

// frameworks serve over real sockets, each on a listener of its own.
var frameworks = map[string]func(text func() string, limiters ...*core.Limiter) func(net.Listener) error{
	"nethttp": func(text func() string, limiters ...*core.Limiter) func(net.Listener) error {
		var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, text())
		})
		for _, l := range slices.Backward(limiters) {
			h = nethttp.From(l)(h)
		}
		return serveHTTP(h)
	},
	"chi": func(text func() string, limiters ...*core.Limiter) func(net.Listener) error {
		r := chi.NewRouter()
		for _, l := range limiters {
			r.Use(chilimit.From(l))
		}
		r.HandleFunc("/*", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text()) })
		return serveHTTP(r)
	},
	"gin": func(text func() string, limiters ...*core.Limiter) func(net.Listener) error {
		gin.SetMode(gin.TestMode)
		r := gin.New()
		for _, l := range limiters {
			r.Use(ginlimit.From(l))
		}
		r.GET("/*any", func(c *gin.Context) { c.String(http.StatusOK, text()) })
		return serveHTTP(r)
	},
	"echo": func(text func() string, limiters ...*core.Limiter) func(net.Listener) error {
		e := echo.New()
		for _, l := range limiters {
			e.Use(echolimit.From(l))
		}
		e.GET("/*", func(c echo.Context) error { return c.String(http.StatusOK, text()) })
		return serveHTTP(e)
	},
	"fiber": func(text func() string, limiters ...*core.Limiter) func(net.Listener) error {
		app := fiber.New(fiber.Config{DisableStartupMessage: true, ReadBufferSize: 1 << 16})
		for _, l := range limiters {
			app.Use(fiberlimit.From(l))
		}
		app.Get("/*", func(c *fiber.Ctx) error { return c.SendString(text()) })
		return app.Listener
	},
}

func serveHTTP(h http.Handler) func(net.Listener) error {
	return func(l net.Listener) error { return http.Serve(l, h) }
}

func onSocket(f func(func() string, ...*core.Limiter) func(net.Listener) error) coretest.Serve {
	return func(t *testing.T, text func() string, limiters ...*core.Limiter) func(*http.Request) *http.Response {
		listener := listen(t, "tcp4", "127.0.0.1:0")
		go f(text, limiters...)(listener)
		client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 32, MaxIdleConnsPerHost: 32}}
		t.Cleanup(client.CloseIdleConnections)
		return coretest.Send(t, client, "http://"+listener.Addr().String())
	}
}

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Skipf("this machine has no %s: %v", network, err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

func client(t *testing.T, addr string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// On a cluster a brace in a key could choose its node. Whatever a client's identity contains, it is limited
// exactly and no store call fails.
func TestHostileIdentitiesOnCluster(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	defer rdb.Close()
	hostile := []string{
		"}", "{}x", "{a}b", "{", "%s", "%00", `"`, `'`, "\\", "a:b", "a b", "é", "\xff\xfe",
		strings.Repeat("k", 8000), "203.0.113.9", "ip:203.0.113.9",
	}
	for name, f := range frameworks {
		t.Run(name, func(t *testing.T) {
			const quota = 3
			l, err := core.New(
				core.Limits{core.PerHour(quota), core.PerDay(quota + 1)}, core.ByHeader("X-API-Key", core.Unverified),
				core.WithStore(redisstore.New(rdb)), core.WithTimeout(time.Minute), core.WithName("hostile-"+name),
				core.WithObserver(func(_ context.Context, e core.Event) {
					if e.Err != nil {
						t.Errorf("key %.20q: %v", e.Key, e.Err)
					}
				}))
			if err != nil {
				t.Fatal(err)
			}
			send := onSocket(f)(t, func() string { return "" }, l)
			for _, identity := range hostile {
				ok := 0
				for range quota + 2 {
					r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://sash.example/", nil)
					r.Header["X-Api-Key"] = []string{identity}
					switch status := send(r).StatusCode; status {
					case http.StatusOK:
						ok++
					case http.StatusTooManyRequests:
					default:
						t.Errorf("identity %.20q: status %d", identity, status)
					}
				}
				if ok != quota {
					t.Errorf("identity %.20q: %d admitted, want %d", identity, ok, quota)
				}
			}
		})
	}
	// What no header can carry comes in claims and through callbacks.
	hostile = append(hostile, "\x00", "a\x00b", "\r\n", "{\r\n}", "\x00{x}")
	claims := jwtkey.ByClaim("sub", jwtkey.Config{Methods: []string{"HS256"}, Key: secret})
	for name, f := range frameworks {
		l, err := core.New(core.PerHour(2), claims,
			core.WithStore(redisstore.New(rdb)), core.WithTimeout(time.Minute), core.WithName("claims-"+name))
		if err != nil {
			t.Fatal(err)
		}
		send := onSocket(f)(t, func() string { return "" }, l)
		for _, identity := range hostile {
			if !utf8.ValidString(identity) || len(identity) > 4000 {
				continue // not a JSON string, or beyond what a token may be
			}
			for i, want := range []int{200, 200, 429, 429} {
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://sash.example/", nil)
				r.Header.Set("Authorization", "Bearer "+tokenOf(t, identity))
				if status := send(r).StatusCode; status != want {
					t.Errorf("%s: claim %q, request %d: status %d, want %d", name, identity, i+1, status, want)
				}
			}
		}
	}
	for _, identity := range []string{"\x00", "a\x00b", "\r\n", "{\r\n}", "\x00{x}"} {
		l, err := core.New(core.PerHour(2), core.By(func(context.Context) (string, error) { return identity, nil }),
			core.WithStore(redisstore.New(rdb)), core.WithTimeout(time.Minute), core.WithName("hostile"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			if d, err := l.Allow(t.Context(), identity); err != nil || d.Allowed != (i < 2) {
				t.Errorf("identity %q, request %d: %+v, %v", identity, i+1, d, err)
			}
		}
	}
}

// Neither identities nor, with a secret, addresses are visible to a client that monitors the server.
func TestServerLearnsNoIdentity(t *testing.T) {
	server := redistest.Start(t)
	watch, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	fmt.Fprint(watch, "MONITOR\r\n")
	lines := bufio.NewReader(watch)
	if line, err := lines.ReadString('\n'); err != nil || line != "+OK\r\n" {
		t.Fatal(line, err)
	}
	rdb := client(t, server.Addr())
	store := redisstore.New(rdb)
	bearer := tokenOf(t, "claim-of-ann-5521")
	const token, address, peer, endMark = "tok-3c2f9e17-very-secret", "198.51.100.77", "127.0.0.1", "end-7d1f"
	for name, f := range frameworks {
		for i, key := range []core.Key{
			core.ByHeader("X-API-Key", core.Unverified),
			core.By(func(context.Context) (string, error) { return token, nil }),
			core.Join(core.ByHeader("X-API-Key", core.Unverified), core.ByIP()),
			core.ByIP(),
			core.ByForwardedIP("127.0.0.0/8"),
			jwtkey.ByClaim("sub", jwtkey.Config{Methods: []string{"HS256"}, Key: secret}),
		} {
			l, err := core.New(core.PerHour(1), key, core.WithStore(store), core.WithTimeout(time.Minute),
				core.WithName(fmt.Sprintf("%s-%d", name, i)), core.WithSecret([]byte("a secret of some length")))
			if err != nil {
				t.Fatal(err)
			}
			send := onSocket(f)(t, func() string { return "" }, l)
			for range 2 {
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://sash.example/", nil)
				r.Header.Set("X-Api-Key", token)
				r.Header.Set("X-Forwarded-For", address)
				r.Header.Set("Authorization", "Bearer "+bearer)
				send(r)
			}
			l.Reset(t.Context(), token)
		}
	}
	rdb.Ping(t.Context())
	rdb.Do(t.Context(), "ECHO", endMark)
	seen := 0
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		// The line begins with the address of our own connection to the server.
		_, command, _ := strings.Cut(line, "] ")
		if strings.Contains(command, endMark) {
			break
		}
		seen++
		for _, private := range []string{token, "very-secret", address, peer, bearer, "eyJ", "claim-of-ann"} {
			if strings.Contains(command, private) {
				t.Fatalf("the server sees %s", line)
			}
		}
	}
	if seen < 5*6*2*3 {
		t.Errorf("only %d commands seen: the test proves nothing", seen)
	}
}

var secret = []byte("a secret of at least 32 bytes, so")

func tokenOf(t *testing.T, subject string) string {
	t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": subject}).SignedString(secret)
	if err != nil {
		t.Fatal(err)
	}
	return token
}
