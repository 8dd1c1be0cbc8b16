package examples_test

import (
	"bytes"
	"io"
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
	"github.com/go-chi/chi/v5/middleware"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"

	"github.com/sashlimit/sash/chilimit"
	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/echolimit"
	"github.com/sashlimit/sash/fiberlimit"
	"github.com/sashlimit/sash/ginlimit"
)

// rowsOf are the rows of the table of proxies on a page.
func rowsOf(t *testing.T, path string) (rows []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n| your situation |")
	if !found {
		t.Fatalf("%s has no table of proxies", path)
	}
	for line := range strings.Lines(table) {
		if line == "\n" {
			break
		}
		rows = append(rows, line)
	}
	return rows[2:] // without what remains of its head
}

// rowOf is the row of the table of docs/proxies.md that begins so.
func rowOf(t *testing.T, begins string) string {
	t.Helper()
	for _, row := range rowsOf(t, "../docs/proxies.md") {
		if strings.HasPrefix(row, "| "+begins+" |") {
			return row
		}
	}
	t.Fatalf("docs/proxies.md has no row for %s", begins)
	return ""
}

// README has some rows of docs/proxies.md, as they are there.
func TestProxiesOfREADME(t *testing.T) {
	all := rowsOf(t, "../docs/proxies.md")
	rows := rowsOf(t, "../README.md")
	if len(rows) < 2 {
		t.Errorf("README has %d rows", len(rows))
	}
	for _, row := range rows {
		if !slices.Contains(all, row) {
			t.Errorf("this row of README is not in docs/proxies.md:\n%s", row)
		}
	}
}

// onListener serves until the test ends, and returns the address.
func onListener(t *testing.T, serve func(net.Listener) error, stop func() error) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		serve(l)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return "http://" + l.Addr().String()
}

func onHandler(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// Each of these serves with an app that takes its client's address from a header, limits by a key, and answers with
// the address that the framework has found.
func inGin(t *testing.T, limit core.Limit, k core.Key) string {
	gin.SetMode(gin.TestMode)
	r := gin.New()
	if err := r.SetTrustedProxies([]string{"127.0.0.1"}); err != nil {
		t.Fatal(err)
	}
	r.Use(ginlimit.New(limit, k))
	r.GET("/", func(c *gin.Context) { c.String(200, c.ClientIP()) })
	return onHandler(t, r)
}

func inEcho(t *testing.T, limit core.Limit, k core.Key) string {
	e := echo.New()
	e.IPExtractor = echo.ExtractIPFromXFFHeader()
	e.Use(echolimit.New(limit, k))
	e.GET("/", func(c echo.Context) error { return c.String(200, c.RealIP()) })
	return onHandler(t, e)
}

func inFiber(t *testing.T, limit core.Limit, k core.Key) string {
	app := fiber.New(fiber.Config{
		DisableStartupMessage: true, ProxyHeader: "X-Real-IP",
		EnableTrustedProxyCheck: true, TrustedProxies: []string{"127.0.0.1"},
	})
	app.Use(fiberlimit.New(limit, k))
	app.Get("/", func(c *fiber.Ctx) error { return c.SendString(c.IP()) })
	return onListener(t, app.Listener, app.Shutdown)
}

func inChi(t *testing.T, limit core.Limit, k core.Key) string {
	r := chi.NewRouter()
	r.Use(middleware.RealIP, chilimit.New(limit, k))
	r.Get("/", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.RemoteAddr) })
	return onHandler(t, r)
}

func beforeChi(t *testing.T, limit core.Limit, k core.Key) string {
	r := chi.NewRouter()
	r.Use(chilimit.New(limit, k), middleware.RealIP)
	r.Get("/", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.RemoteAddr) })
	return onHandler(t, r)
}

// The rows of docs/proxies.md for what frameworks compute of forwarding headers. Each believes localhost, as its own
// answer shows, and a client there forges another address with each of four requests, at a quota of two.
func TestFrameworksForwardedAddresses(t *testing.T) {
	trusted, other := core.ByForwardedIP("127.0.0.1"), core.ByForwardedIP("10.0.0.0/8")
	held, free := []int{200, 200, 429, 429}, []int{200, 200, 200, 200}
	for _, c := range []struct {
		desc, row string
		serve     func(*testing.T, core.Limit, core.Key) string
		key       core.Key
		want      []int
	}{
		{"gin", "gin with `SetTrustedProxies`", inGin, core.ByIP(), held},
		{"gin, another proxy", "", inGin, other, held},
		{"gin, the proxy", "", inGin, trusted, free}, // each forged address is another client's
		{"echo", "echo with `IPExtractor`", inEcho, core.ByIP(), held},
		{"echo, another proxy", "", inEcho, other, held},
		{"echo, the proxy", "", inEcho, trusted, free},
		{"fiber", "fiber with `ProxyHeader`", inFiber, core.ByIP(), held},
		{"fiber, another proxy", "", inFiber, other, held},
		{"fiber, the proxy", "", inFiber, trusted, free},
		{"RealIP in front", "chi with `middleware.RealIP`", inChi, core.ByIP(), free},
		{"RealIP in front, another proxy", "", inChi, other, free},
		{"RealIP behind", "", beforeChi, core.ByIP(), held},
		{"RealIP behind, another proxy", "", beforeChi, other, held},
	} {
		t.Run(c.desc, func(t *testing.T) {
			if c.row != "" {
				rowOf(t, c.row)
			}
			url := c.serve(t, core.PerHour(2), c.key)
			var got []int
			for _, forged := range []string{"6.6.6.1", "6.6.6.2", "6.6.6.3", "6.6.6.4"} {
				w, body := ask(t, http.MethodGet, url, "", "X-Forwarded-For: "+forged, "X-Real-IP: "+forged)
				got = append(got, w.StatusCode)
				if w.StatusCode == 200 && !strings.HasPrefix(body, forged) {
					t.Errorf("the framework takes the client for %s, want %s", body, forged)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("statuses %v, want %v", got, c.want)
			}
		})
	}
}

// The rows of docs/proxies.md for addresses that frameworks find, with the settings that they name, at a quota of one.
// The addresses of one /64 are one client.
func TestFoundAddresses(t *testing.T) {
	source, err := os.ReadFile("proxies_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for row, c := range map[string]struct {
		serve func(*testing.T, core.Limit, core.Key) string
		key   core.Key
	}{
		"gin": {inGin,
			//nolint:lll // as the page has it
			core.ByAddr(func(c *gin.Context) (netip.Addr, error) { a, _ := netip.ParseAddr(c.ClientIP()); return a, nil })},
		"echo": {inEcho,
			//nolint:lll // as the page has it
			core.ByAddr(func(c echo.Context) (netip.Addr, error) { a, _ := netip.ParseAddr(c.RealIP()); return a, nil })},
		"fiber": {inFiber,
			core.ByAddr(func(c *fiber.Ctx) (netip.Addr, error) { a, _ := netip.ParseAddr(c.IP()); return a, nil })},
	} {
		t.Run(row, func(t *testing.T) {
			page, err := os.ReadFile("../docs/proxies.md")
			if err != nil {
				t.Fatal(err)
			}
			_, line, _ := strings.Cut(string(page), "\n| "+row+" | `")
			if line, _, _ = strings.Cut(line, "`"); line == "" || !bytes.Contains(source, []byte(line+"},\n")) {
				t.Errorf("docs/proxies.md has a line that this test does not run: %q", line)
			}
			url := c.serve(t, core.PerHour(1), c.key)
			for _, c := range []struct {
				address string
				want    int
			}{
				{"2001:db8::1", 200}, {"2001:db8::2", 429}, {"2001:db8:0:1::1", 200}, {"192.0.2.1", 200},
				{"::ffff:192.0.2.1", 429},
			} {
				fields := []string{"X-Forwarded-For: " + c.address, "X-Real-IP: " + c.address}
				if w, _ := ask(t, http.MethodGet, url, "", fields...); w.StatusCode != c.want {
					t.Errorf("%s: status %d, want %d", c.address, w.StatusCode, c.want)
				}
			}
		})
	}
}
