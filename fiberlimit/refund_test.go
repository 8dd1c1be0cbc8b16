package fiberlimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/gofiber/fiber/v2"
	recovery "github.com/gofiber/fiber/v2/middleware/recover"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/fiberlimit"
)

var errConflict = errors.New("a conflict")

// custom answers an error of the application's own, and counts how often it is called.
func custom(calls *int) fiber.ErrorHandler {
	return func(c *fiber.Ctx, err error) error {
		*calls++
		var fe *fiber.Error
		switch {
		case errors.Is(err, errConflict):
			return c.Status(409).SendString("conflict")
		case errors.As(err, &fe):
			return c.Status(fe.Code).SendString(fe.Message)
		}
		return fmt.Errorf("nobody knows what %w is", err)
	}
}

// WithRefund's callback is called once, with the status that the client gets.
func TestRefund(t *testing.T) {
	plain := errors.New("plain")
	for _, c := range []struct {
		desc    string
		handler fiber.Handler
		custom  bool // the application has an error handler of its own
		status  int
		body    string
		errors  int // that its handler is to see
	}{
		{"nothing", func(*fiber.Ctx) error { return nil }, false, 200, "", 0},
		{"a body", served, false, 200, "served", 0},
		{"304", func(c *fiber.Ctx) error { c.Status(304); return nil }, false, 304, "", 0},
		{"SendStatus", func(c *fiber.Ctx) error { return c.SendStatus(404) }, false, 404, "Not Found", 0},
		{"500", func(c *fiber.Ctx) error { return c.Status(500).SendString("down") }, false, 500, "down", 0},
		{"the last status", func(c *fiber.Ctx) error {
			c.Status(500)
			return c.Status(201).SendString("made")
		}, false, 201, "made", 0},
		{"TimeoutError", func(c *fiber.Ctx) error {
			c.Context().TimeoutErrorWithCode("late", 504)
			return nil
		}, false, 504, "late", 0},
		{"no route", func(c *fiber.Ctx) error { return c.Next() }, false, 404, "Cannot GET /", 0},
		{"fiber.Error", func(*fiber.Ctx) error { return fiber.NewError(404, "gone") }, false, 404, "gone", 0},
		{"wrapped", func(*fiber.Ctx) error {
			return fmt.Errorf("here: %w", fiber.ErrTeapot)
		}, false, 418, "here: I'm a teapot", 0},
		{"a plain error", func(*fiber.Ctx) error { return plain }, false, 500, "plain", 0},
		{"an error after a status", func(c *fiber.Ctx) error { c.Status(200); return plain }, false, 500, "plain", 0},

		{"own: nothing", served, true, 200, "served", 0},
		{"own: a domain error", func(*fiber.Ctx) error { return errConflict }, true, 409, "conflict", 1},
		{"own: fiber.Error", func(*fiber.Ctx) error { return fiber.NewError(404, "gone") }, true, 404, "gone", 1},
		{"own: no route", func(c *fiber.Ctx) error { return c.Next() }, true, 404, "Cannot GET /", 1},
		{"own: it fails", func(*fiber.Ctx) error { return plain }, true, 500, "Internal Server Error", 1},
	} {
		t.Run(c.desc, func(t *testing.T) {
			var asked []int
			calls := 0
			l, err := core.New(core.PerMinute(9), core.ByHeader("User", core.Unverified),
				core.WithRefund(func(c *fiber.Ctx, status int) bool {
					asked = append(asked, status)
					return c.Get("Back") != ""
				}))
			if err != nil {
				t.Fatal(err)
			}
			config := fiber.Config{}
			if c.custom {
				config.ErrorHandler = custom(&calls)
			}
			app := fiber.New(config)
			app.Use(fiberlimit.From(l))
			app.Get("/", c.handler)
			for i, header := range [][]string{{"User", "ann", "Back", "1"}, {"User", "ann"}} {
				asked, calls = nil, 0
				status, body, _ := get(t, app, "/", header...)
				if status != c.status || body != c.body || calls != c.errors {
					t.Errorf("status %d, body %q, %d errors handled; want %d, %q, %d",
						status, body, calls, c.status, c.body, c.errors)
				}
				if !slices.Equal(asked, []int{c.status}) {
					t.Errorf("asked about %v, want %d once", asked, c.status)
				}
				if n := used(t, l); n != i { // the first is given back, the second is not
					t.Errorf("%d units used, want %d", n, i)
				}
			}
		})
	}
}

func used(t *testing.T, l *core.Limiter) int {
	t.Helper()
	d, err := l.Peek(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	return d.Used
}

// A panic counts as 500 and is passed on to the middleware that recovers from it.
func TestRefundPanic(t *testing.T) {
	boom := func(*fiber.Ctx) error { panic("boom") }
	conflict := func(*fiber.Ctx) error { panic(errConflict) }
	for _, c := range []struct {
		desc          string
		outer, inner  fiber.Handler
		handler       fiber.Handler
		custom        bool
		asked, status int
		errors        int
	}{
		{"caught outside", recovery.New(), next, boom, false, 500, 500, 0},
		{"caught inside", next, recovery.New(), boom, false, 500, 500, 0},
		// Outside the limiter, the panic becomes an error only after the limiter has counted it as 500.
		{"caught outside, own handler", recovery.New(), next, conflict, true, 500, 409, 1},
		{"caught inside, own handler", next, recovery.New(), conflict, true, 409, 409, 1},
	} {
		var asked []int
		calls := 0
		l, err := core.New(core.PerMinute(9), ann(), core.WithRefund(func(_ *fiber.Ctx, status int) bool {
			asked = append(asked, status)
			return len(asked) == 1
		}))
		if err != nil {
			t.Fatal(err)
		}
		config := fiber.Config{}
		if c.custom {
			config.ErrorHandler = custom(&calls)
		}
		app := fiber.New(config)
		app.Use(c.outer, fiberlimit.From(l), c.inner)
		app.Get("/", c.handler)
		for i := range 2 {
			calls = 0
			if status, _, _ := get(t, app, "/"); status != c.status || calls != c.errors {
				t.Errorf("%s: status %d, %d errors handled; want %d, %d", c.desc, status, calls, c.status, c.errors)
			}
			if n := used(t, l); n != i {
				t.Errorf("%s: %d units used, want %d", c.desc, n, i)
			}
		}
		if !slices.Equal(asked, []int{c.asked, c.asked}) {
			t.Errorf("%s: asked about %v, want %d twice", c.desc, asked, c.asked)
		}
	}
}

func next(c *fiber.Ctx) error { return c.Next() }

// With the option the limiter answers an error itself, so that it knows the status; without it the error goes on.
func TestRefundAndOuterMiddleware(t *testing.T) {
	for desc, opts := range map[string][]core.Option{
		"without": nil,
		"with":    {core.WithRefund(func(context.Context, int) bool { return true })},
	} {
		calls := 0
		var seen error
		app := fiber.New(fiber.Config{ErrorHandler: custom(&calls)})
		app.Use(func(c *fiber.Ctx) error { seen = c.Next(); return seen })
		app.Use(fiberlimit.New(core.PerMinute(1), ann(), opts...))
		app.Get("/", func(*fiber.Ctx) error { return errConflict })
		status, body, _ := get(t, app, "/")
		passed := errors.Is(seen, errConflict)
		if status != 409 || body != "conflict" || calls != 1 || passed != (opts == nil) {
			t.Errorf("%s the option: status %d, body %q, %d errors handled, outer middleware sees %v",
				desc, status, body, calls, seen)
		}
	}
}

// A mounted application has its own error handler.
func TestRefundMounted(t *testing.T) {
	calls, asked := 0, 0
	inner := fiber.New(fiber.Config{ErrorHandler: custom(&calls)})
	inner.Get("/", func(*fiber.Ctx) error { return errConflict })
	app := fiber.New()
	refund := core.WithRefund(func(_ *fiber.Ctx, status int) bool { asked = status; return true })
	app.Use(fiberlimit.New(core.PerMinute(1), ann(), refund))
	app.Mount("/inner", inner)
	if status, body, _ := get(t, app, "/inner"); status != 409 || body != "conflict" || calls != 1 || asked != 409 {
		t.Errorf("status %d, body %q, %d errors handled, asked about %d", status, body, calls, asked)
	}
}

// fasthttp reuses a request's memory, and handlers may write to it. Refunds and observed keys must still be those
// of the key that was charged.
func TestRefundKeepsTheKey(t *testing.T) {
	var events []core.Event
	store := core.NewMemoryStore()
	user := core.By(func(c *fiber.Ctx) (string, error) { return c.Query("user"), nil })
	l, err := core.New(core.PerMinute(9), user, core.WithStore(store),
		core.WithRefund(func(c *fiber.Ctx, _ int) bool { return c.Get("Back") != "" }),
		core.WithObserver(func(_ context.Context, e core.Event) { events = append(events, e) }))
	if err != nil {
		t.Fatal(err)
	}
	unobserved, err := core.New(core.PerMinute(9), user, core.WithStore(store))
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	app.Use(fiberlimit.From(l))
	app.Get("/", func(c *fiber.Ctx) error {
		c.Context().QueryArgs().Set("user", "bob")
		return nil
	})
	get(t, app, "/?user=ann", "Back", "1")
	if n := used(t, unobserved); n != 0 {
		t.Errorf("%d units used, want 0", n)
	}
	get(t, app, "/?user=ann")
	get(t, app, "/?user=eve")
	if len(events) != 4 {
		t.Fatalf("%d events, want 4", len(events))
	}
	for i, want := range []core.Event{{Key: "ann"}, {Key: "ann", Outcome: event.Refunded}, {Key: "ann"}, {Key: "eve"}} {
		e := events[i]
		if e.Key != want.Key || e.Outcome != want.Outcome || e.Err != nil || !e.Decision.Allowed {
			t.Errorf("event %d: %+v", i+1, events[i])
		}
	}
	for i, left := range []int{1, 1, 0} { // the second's unit is back already
		if err := events[i].Decision.Undo(t.Context()); err != nil || used(t, unobserved) != left {
			t.Errorf("event %d: %d units used, %v; want %d", i+1, used(t, unobserved), err, left)
		}
	}
}

// Each limiter's callback is called, and the outer one gets the status of the answered error.
func TestRefundTwoLimiters(t *testing.T) {
	var asked []string
	calls := 0
	limit := func(name string) fiber.Handler {
		refund := core.WithRefund(func(_ *fiber.Ctx, status int) bool {
			asked = append(asked, fmt.Sprint(name, " ", status))
			return true
		})
		return fiberlimit.New(core.PerMinute(1), ann(), core.WithName(name), refund)
	}
	app := fiber.New(fiber.Config{ErrorHandler: custom(&calls)})
	app.Use(limit("outer"), limit("inner"))
	app.Get("/", func(*fiber.Ctx) error { return errConflict })
	for range 3 {
		asked, calls = nil, 0
		status, _, _ := get(t, app, "/")
		if status != 409 || calls != 1 || !slices.Equal(asked, []string{"inner 409", "outer 409"}) {
			t.Errorf("status %d, %d errors handled, asked %q", status, calls, asked)
		}
	}
}
