package recipes

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/labstack/echo/v5"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/nethttp"
)

// These tests show what README.md says does not work. One that fails says that it works now: then correct README.md.

// logins counts failed logins only, and allows five.
func logins() func(http.Handler) http.Handler {
	return nethttp.New(core.PerHour(5), core.Global(),
		core.WithRefund(func(_ *http.Request, status int) bool { return status < 400 }))
}

// wrong sends ten wrong passwords and returns how many were looked at.
func wrong(t *testing.T, send func(*http.Request) (*http.Response, error)) (answered int) {
	t.Helper()
	for range 10 {
		r, err := send(httptest.NewRequest(http.MethodPost, "/login", nil))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode == http.StatusUnauthorized {
			answered++
		}
	}
	return answered
}

// In echo v5, WithRefund gets status 200 for a handler that returns an error, and the right one for a handler that
// writes its answer.
func TestEchoLimitationOfWithRefund(t *testing.T) {
	for desc, c := range map[string]struct {
		login echo.HandlerFunc
		want  int
	}{
		"returns an error": {func(*echo.Context) error { return echo.ErrUnauthorized }, 10},
		"writes":           {func(c *echo.Context) error { return c.NoContent(http.StatusUnauthorized) }, 5},
	} {
		e := echo.New()
		e.Use(echo.WrapMiddleware(logins()))
		e.POST("/login", c.login)
		if n := wrong(t, func(r *http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			e.ServeHTTP(w, r)
			return w.Result(), nil
		}); n != c.want {
			t.Errorf("%s: %d wrong passwords were answered, want %d", desc, n, c.want)
		}
	}
}

// In fiber v3, WithRefund gets status 200 for all that is allowed.
func TestFiberLimitationOfWithRefund(t *testing.T) {
	app := fiber.New()
	app.Use(adaptor.HTTPMiddleware(logins()))
	app.Post("/login", func(c fiber.Ctx) error { return c.SendStatus(http.StatusUnauthorized) })
	if n := wrong(t, func(r *http.Request) (*http.Response, error) { return app.Test(r) }); n != 10 {
		t.Errorf("%d wrong passwords were answered", n)
	}
}

// In fiber v3, InFlight(1) lets five run at once.
func TestFiberLimitationOfInFlight(t *testing.T) {
	app := fiber.New()
	app.Use(adaptor.HTTPMiddleware(nethttp.New(core.InFlight(1), core.Global())))
	running, end := make(chan struct{}), make(chan struct{})
	app.Get("/", func(fiber.Ctx) error {
		running <- struct{}{}
		<-end
		return nil
	})
	answers := make(chan int)
	atOnce := 0
	for range 5 { // one after another, since the middleware itself does limit how often it runs at once
		go func() {
			r, err := app.Test(httptest.NewRequest(http.MethodGet, "/", nil), fiber.TestConfig{Timeout: 0})
			if err != nil {
				t.Error(err)
				answers <- 0
				return
			}
			r.Body.Close()
			answers <- r.StatusCode
		}()
		select {
		case <-running:
			atOnce++
		case status := <-answers:
			t.Errorf("status %d while %d run", status, atOnce)
		}
	}
	close(end)
	for range atOnce {
		if status := <-answers; status != http.StatusOK {
			t.Errorf("status %d", status)
		}
	}
}

// In fiber v3, the limiter sees only the last of request header fields of one name, and the handler sees the last in
// place of the first.
func TestFiberLimitationOfRepeatedFields(t *testing.T) {
	var seen []string
	app := fiber.New()
	app.Use(adaptor.HTTPMiddleware(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen = r.Header.Values("Tag")
			next.ServeHTTP(w, r)
		})
	}))
	app.Get("/", func(c fiber.Ctx) error {
		for _, tag := range c.Request().Header.PeekAll("Tag") {
			if _, err := c.Write(append(tag, ' ')); err != nil {
				return err
			}
		}
		return nil
	})
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header["Tag"] = []string{"one", "two"}
	answer, err := app.Test(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || string(body) != "two two " || !slices.Equal(seen, []string{"two"}) {
		t.Errorf("the handler sees %q, the middleware %q, %v", body, seen, err)
	}
}
