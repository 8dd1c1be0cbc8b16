package fiberlimit_test

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/fiberlimit/v3"
)

// fiber does not survive a panic of WithDeny's handler, so it is a 500, which was silent.
func TestHandlerThatPanicsIsLogged(t *testing.T) {
	var b bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&b, nil)))
	defer slog.SetDefault(before)
	app := fiber.New()
	app.Use(fiberlimit.New(core.PerMinute(1), core.Global(), core.WithName("api"),
		fiberlimit.WithDeny(func(fiber.Ctx, core.Decision) error { panic("ada@example.com") })))
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("served") })
	for i := range 4 {
		response, err := app.Test(httptest.NewRequest("GET", "/", nil), fiber.TestConfig{})
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if want := map[bool]int{true: 200, false: 500}[i == 0]; response.StatusCode != want {
			t.Errorf("status %d, want %d", response.StatusCode, want)
		}
	}
	got := b.String()
	for _, want := range []string{"a handler of refused requests has panicked", "policy=api",
		"/report_test.go:", "value=string"} {
		if !strings.Contains(got, want) {
			t.Errorf("the log lacks %s:\n%s", want, got)
		}
	}
	if strings.Count(got, "\n") != 1 || strings.Contains(got, "ada@") {
		t.Errorf("logged\n%s", got)
	}
}
