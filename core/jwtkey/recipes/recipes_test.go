package recipes_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	ginjwt "github.com/appleboy/gin-jwt/v2"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/jwtauth/v5"
	jwtware "github.com/gofiber/contrib/jwt"
	"github.com/gofiber/fiber/v2"
	"github.com/golang-jwt/jwt/v5"
	echojwt "github.com/labstack/echo-jwt/v4"
	"github.com/labstack/echo/v4"
	"github.com/valyala/fasthttp"

	"github.com/sashlimit/sash/chilimit"
	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/jwtkey"
	"github.com/sashlimit/sash/echolimit"
	"github.com/sashlimit/sash/fiberlimit"
	"github.com/sashlimit/sash/ginlimit"
)

func init() { gin.SetMode(gin.TestMode) }

var secret = []byte("an-hs256-test-secret-of-32-bytes")

// quota is 2, so that a key that was counted under another name shows.
var quota = core.PerHour(2)

func withEcho(e *echo.Echo) {
	e.Use(echojwt.WithConfig(echojwt.Config{
		SigningKey:             secret,
		ContinueOnIgnoredError: true, // requests without a token go on, and count by address
		ErrorHandler:           func(echo.Context, error) error { return nil },
	}))
	e.Use(echolimit.New(quota, core.First(jwtkey.ByContextClaim("user", "sub"), core.ByIP())))
}

func withChi(r chi.Router) {
	r.Use(jwtauth.Verifier(jwtauth.New("HS256", secret, nil)))
	r.Use(chilimit.New(quota, core.First(core.By(subject), core.ByIP())))
	// and then jwtauth.Authenticator, which refuses the rest
}

// The verifier leaves expired tokens too, with an error: look at that first.
func subject(r *http.Request) (string, error) {
	token, _, err := jwtauth.FromContext(r.Context())
	if err != nil || token == nil {
		return "", core.ErrNoKey
	}
	return token.Subject(), nil
}

func withGin(r *gin.Engine) error {
	auth, err := ginjwt.New(&ginjwt.GinJWTMiddleware{
		Key:           secret,
		DisabledAbort: true, // requests without a token go on, and count by address
		Unauthorized:  func(*gin.Context, int, string) {},
	})
	if err != nil {
		return err
	}
	r.Use(auth.MiddlewareFunc())
	// never "JWT_TOKEN", which is set before the token is verified
	r.Use(ginlimit.New(quota, core.First(jwtkey.ByContextClaim("JWT_PAYLOAD", "sub"), core.ByIP())))
	return nil
}

func withFiber(app *fiber.App) {
	app.Use(jwtware.New(jwtware.Config{
		SigningKey: jwtware.SigningKey{JWTAlg: jwtware.HS256, Key: secret},
		// Requests without a token go on to the limiter, which counts them by address.
		ErrorHandler: func(c *fiber.Ctx, _ error) error { return c.Next() },
	}))
	app.Use(fiberlimit.New(quota, core.First(jwtkey.ByContextClaim("user", "sub"), core.ByIP())))
}

var servers = map[string]func(*testing.T) func(*http.Request) int{
	"echo": func(*testing.T) func(*http.Request) int {
		e := echo.New()
		withEcho(e)
		e.GET("/", func(c echo.Context) error { return c.NoContent(http.StatusOK) })
		return status(e)
	},
	"chi": func(*testing.T) func(*http.Request) int {
		r := chi.NewRouter()
		withChi(r)
		r.Get("/", func(http.ResponseWriter, *http.Request) {})
		return status(r)
	},
	"gin": func(t *testing.T) func(*http.Request) int {
		r := gin.New()
		if err := withGin(r); err != nil {
			t.Fatal(err)
		}
		r.GET("/", func(c *gin.Context) { c.Status(http.StatusOK) })
		return status(r)
	},
	"fiber": func(*testing.T) func(*http.Request) int {
		app := fiber.New()
		withFiber(app)
		app.Get("/", func(c *fiber.Ctx) error { return c.SendStatus(http.StatusOK) })
		return from(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1234}, app)
	},
}

func status(h http.Handler) func(*http.Request) int {
	return func(r *http.Request) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
}

func token(t *testing.T, key []byte, sub string, exp int64) string {
	t.Helper()
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": sub, "exp": exp}).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestRecipes(t *testing.T) {
	const late = 4102444800
	forged := token(t, []byte("another-hs256-secret-of-32-bytes"), "ann", late)
	ann, bob, expired := token(t, secret, "ann", late), token(t, secret, "bob", late), token(t, secret, "ann", 1)
	for name, server := range servers {
		for who, stranger := range map[string]string{"nobody": "", "forged": forged, "expired": expired} {
			send := server(t)
			for i, c := range []struct {
				token string
				want  int
			}{
				{ann, 200}, {bob, 200}, {ann, 200}, {ann, 429},
				// Unverified requests share the quota of their address, which ann's requests leave untouched.
				{stranger, 200}, {stranger, 200}, {"", 429}, {forged, 429}, {expired, 429}, {"x", 429},
				{bob, 200}, {bob, 429},
			} {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				if c.token != "" {
					r.Header.Set("Authorization", "Bearer "+c.token)
				}
				if got := send(r); got != c.want {
					t.Errorf("%s, %s, request %d: status %d, want %d", name, who, i+1, got, c.want)
				}
			}
		}
	}
}

// TestREADME checks that every code block of the README occurs in this package.
func TestREADME(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	source := strings.ReplaceAll(read("recipes_test.go"), "\n\t", "\n")
	blocks := strings.Split(read("README.md"), "```go\n")[1:]
	if len(blocks) != 4 {
		t.Errorf("%d recipes, want 4", len(blocks))
	}
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		for part := range strings.SplitSeq(code, "\n\n") {
			part = strings.TrimSpace(part)
			if !strings.Contains(source, part) && !strings.Contains(read("recipes_test.go"), part) {
				t.Errorf("this is in README.md and not tested:\n%s", part)
			}
		}
	}
}

// from serves an app's requests as if they came from addr; app.Test has no address.
func from(addr net.Addr, app *fiber.App) func(*http.Request) int {
	serve := app.Handler()
	return func(r *http.Request) int {
		var request fasthttp.Request
		request.SetRequestURI("/")
		for _, value := range r.Header.Values("Authorization") {
			request.Header.Add("Authorization", value)
		}
		var ctx fasthttp.RequestCtx
		ctx.Init(&request, addr, nil)
		serve(&ctx)
		return ctx.Response.StatusCode()
	}
}
