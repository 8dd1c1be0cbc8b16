package dashboard_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/sashlimit/sash/core/dashboard"
)

// The page is served by each framework, also behind middleware that compresses, and its events arrive while the stream
// goes on.
func TestFrameworks(t *testing.T) {
	var board dashboard.Board
	page := dashboard.Handler(&board)
	gin.SetMode(gin.ReleaseMode)
	onGin := gin.New()
	onGin.Any("/limits/*path", gin.WrapH(page))
	onEcho := echo.New()
	onEcho.Use(middleware.Gzip(), middleware.Recover())
	onEcho.Any("/limits/*", echo.WrapHandler(page))
	onChi := chi.NewRouter()
	onChi.Mount("/limits", page)
	onNet := http.NewServeMux()
	onNet.Handle("/limits/", page)
	for name, h := range map[string]http.Handler{"gin": onGin, "echo": onEcho, "chi": onChi, "net/http": onNet} {
		server := httptest.NewServer(h)
		streams(t, name, server.URL)
		board.Close()
		server.Close()
	}
	onFiber := fiber.New(fiber.Config{DisableStartupMessage: true})
	onFiber.All("/limits/*", adaptor.HTTPHandler(page))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go onFiber.Listener(listener)
	streams(t, "fiber", "http://"+listener.Addr().String())
	board.Close()
	if err := onFiber.Shutdown(); err != nil {
		t.Error(err)
	}
}

func streams(t *testing.T, name, url string) {
	t.Helper()
	for path, part := range map[string]string{
		"/limits/": "<title>Rate limits</title>", "/limits/board.js": "EventSource",
		"/limits/events": `data: {"policies":`,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // a stream ends after a minute
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(name, err)
		}
		found := false
		for lines := bufio.NewScanner(answer.Body); !found && lines.Scan(); {
			found = strings.Contains(lines.Text(), part)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK || !found {
			t.Errorf("%s %s: %s, %q was found: %t", name, path, answer.Status, part, found)
		}
	}
}
