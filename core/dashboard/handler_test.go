package dashboard_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/dashboard"
	"github.com/sashlimit/sash/core/store"
)

// serve sends one request and returns the answer.
func serve(t *testing.T, h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// events returns what a server that cannot flush answers at once.
func events(t *testing.T, h http.Handler) string {
	t.Helper()
	return serve(t, http.TimeoutHandler(h, time.Minute, ""), http.MethodGet, "/events", "").Body.String()
}

// The page works under any path, and a path without the slash at its end leads to it.
func TestPaths(t *testing.T) {
	page := dashboard.Handler(new(dashboard.Board))
	mux := http.NewServeMux()
	mux.Handle("/limits/", page)
	mux.Handle("/admin/limits/", http.StripPrefix("/admin/limits", page))
	mux.Handle("/slash/", http.StripPrefix("/slash/", page))
	mux.Handle("/admin/other", http.StripPrefix("/admin/other", page))
	mux.Handle("/plain", page)
	for _, test := range []struct {
		method, path string
		status       int
		location     string
	}{
		{"GET", "/limits/", 200, ""},
		{"HEAD", "/limits/", 200, ""},
		{"GET", "/limits/board.js", 200, ""},
		{"GET", "/admin/limits/", 200, ""},
		{"GET", "/admin/limits/board.css", 200, ""},
		{"GET", "/slash/", 200, ""},
		{"GET", "/slash/board.js", 200, ""},
		{"GET", "/admin/other", 307, "./other/"},
		{"GET", "/plain", 307, "./plain/"},
		{"GET", "/plain?x=/y", 307, "./plain/"},
		{"GET", "/limits/none.js", 404, ""},
		{"POST", "/limits/", 405, ""},
		{"GET", "/limits/window", 405, ""},
		{"GET", "/limits/reset", 405, ""},
		{"POST", "/limits/events", 405, ""},
	} {
		w := serve(t, mux, test.method, test.path, "")
		if w.Code != test.status || w.Header().Get("Location") != test.location {
			t.Errorf("%s %s: %d, %q", test.method, test.path, w.Code, w.Header().Get("Location"))
		}
	}
	for _, path := range []string{"/https:evil", "//evil", "/javascript:x"} {
		location := serve(t, page, "GET", "http://host"+path, "").Header().Get("Location")
		if !strings.HasPrefix(location, "./") {
			t.Errorf("%s leads to %q", path, location)
		}
	}
}

// Every answer forbids what the page does not need, and the page needs nothing from elsewhere.
func TestContentSecurity(t *testing.T) {
	h := dashboard.Handler(new(dashboard.Board))
	for _, path := range []string{"/", "/board.js", "/board.css", "/none.js", "/window"} {
		w := serve(t, h, http.MethodGet, path, "")
		policy := w.Header().Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") ||
			!strings.Contains(policy, "frame-ancestors 'none'") {
			t.Errorf("%s: %q", path, policy)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", path, w.Header())
		}
		text := strings.ReplaceAll(w.Body.String(), "http://www.w3.org/2000/svg", "")
		for _, no := range []string{"http://", "https://", "style=", "<style", "innerHTML", "onclick"} {
			if strings.Contains(text, no) {
				t.Errorf("%s has %q", path, no)
			}
		}
	}
}

// A handler that cannot work is a panic with every mistake.
func TestMistakes(t *testing.T) {
	defer func() {
		text := fmt.Sprint(recover())
		for _, part := range []string{"dashboard.Handler(nil)", "WithActions(nil)", "dashboard.Option(nil)"} {
			if !strings.Contains(text, part) {
				t.Errorf("%q does not name %s", text, part)
			}
		}
	}()
	dashboard.Handler(nil, dashboard.WithActions(nil), nil)
}

// window is the answer about a key.
type window struct {
	Policy, Name string
	Banned       bool
	Denied       bool
	Limits       []struct {
		Name, Key, Algorithm   string
		Quota, Used, Remaining int
		Booked                 int
		Window, Reset          float64
		Marks                  [][2]float64
	}
}

func ask(t *testing.T, h http.Handler, question string, header ...string) (w window) {
	t.Helper()
	answer := serve(t, h, http.MethodPost, "/window", question, header...)
	if err := json.Unmarshal(answer.Body.Bytes(), &w); err != nil {
		t.Fatalf("%s: %d, %s", question, answer.Code, answer.Body)
	}
	return w
}

// shop has two limiters, a board whose page is open, and what the page was told first.
type shop struct {
	board        dashboard.Board
	login, order *core.Limiter
}

func newLimiter(t *testing.T, p core.Policy, k core.Key, opts ...core.Option) *core.Limiter {
	t.Helper()
	l, err := core.New(p, k, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newShop(t *testing.T, s core.Store) *shop {
	t.Helper()
	p := new(shop)
	p.login = newLimiter(t, core.PerMinute(3), core.ByIP(), core.WithName("login"), core.WithStore(s),
		core.WithObserver(p.board.Observe), core.WithFailure(core.FailClosed))
	p.order = newLimiter(t, core.Limits{core.PerHour(5000), core.PerMinute(9).With(core.FixedWindow)}, core.ByText(),
		core.WithName("order"), core.WithStore(s), core.WithObserver(p.board.Observe))
	p.board.Add(p.login, p.order)
	return p
}

// watch opens a page for the rest of the test, and returns its first message when it is asked for.
func (p *shop) watch(t *testing.T, opts ...dashboard.Option) (h http.Handler, latest func() told) {
	t.Helper()
	h = dashboard.Handler(&p.board, opts...)
	once := func() told {
		_, data, _ := strings.Cut(events(t, h), "data: ")
		var m told
		if err := json.Unmarshal([]byte(data), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	once()
	return h, once
}

func (p *shop) allow(t *testing.T, l *core.Limiter, key string, n int) {
	t.Helper()
	for range n {
		if _, err := l.Allow(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
}

func anybody(*http.Request) bool { return true }

// The key with the most requests is found, its window is what the limiter has decided, and it can be reset. Nothing
// that a page gets has its name.
func TestWindowOfHotKey(t *testing.T) {
	p := newShop(t, core.NewMemoryStore())
	h, latest := p.watch(t, dashboard.WithActions(anybody))
	p.allow(t, p.login, "203.0.113.77", 5)
	p.allow(t, p.login, "2001:db8:1:2:3::4", 2)
	p.allow(t, p.order, "customer 7", 1)
	m := latest()
	if len(m.Hot) != 3 || m.Hot[0].Requests != 5 || m.Hot[1].Requests != 2 || m.Hot[0].Policy != "login" ||
		!*m.Actions {
		t.Fatalf("%+v", m)
	}
	first := fmt.Sprintf(`{"id":%q}`, m.Hot[0].ID)
	w := ask(t, h, first)
	if w.Policy != "login" || w.Name != m.Hot[0].ID || len(w.Limits) != 1 {
		t.Fatalf("%+v", w)
	}
	if l := w.Limits[0]; l.Used != 3 || l.Remaining != 0 || l.Quota != 3 || l.Window != 60 || len(l.Marks) != 3 ||
		l.Key != w.Name || l.Reset > 60 || l.Reset < 10 || l.Marks[0][0] < 0 || l.Marks[0][0] > 50 ||
		l.Marks[2][1] != 1 {
		t.Errorf("%+v", l)
	}
	order := ask(t, h, fmt.Sprintf(`{"id":%q}`, m.Hot[2].ID))
	if len(order.Limits) != 2 || order.Limits[1].Algorithm != "fixed window" || len(order.Limits[1].Marks) != 0 {
		t.Errorf("%+v", order)
	}
	six := ask(t, h, fmt.Sprintf(`{"id":%q}`, m.Hot[1].ID))
	if len(six.Limits) != 1 || six.Limits[0].Used != 2 {
		t.Errorf("%+v", six)
	}
	// What is reset must be what the page has shown.
	for _, other := range []string{`"limit":-1`, `"limit":1`, `"limit":0`, `"limit":0,"name":"3-per-minute"`,
		`"limit":0,"name":"4-per-minute","of":"` + w.Name + `"`} {
		question := fmt.Sprintf(`{"id":%q,%s}`, m.Hot[0].ID, other)
		if a := serve(t, h, http.MethodPost, "/reset", question); a.Code != http.StatusConflict {
			t.Errorf("%s: %d", question, a.Code)
		}
	}
	reset := fmt.Sprintf(`{"id":%q,"limit":0,"name":%q,"of":%q}`, m.Hot[0].ID, w.Limits[0].Name, w.Limits[0].Key)
	if a := serve(t, h, http.MethodPost, "/reset", reset); a.Code != http.StatusNoContent {
		t.Errorf("%d: %s", a.Code, a.Body)
	}
	if d, err := p.login.Peek(t.Context(), "203.0.113.77"); err != nil || d.Remaining != 3 {
		t.Error(d, err)
	}
	hidesNames(t, h, first, "203.0.113", "2001:db8", "customer")
}

// hidesNames checks that nothing which a page gets has one of the names.
func hidesNames(t *testing.T, h http.Handler, question string, names ...string) {
	t.Helper()
	text := events(t, h) + serve(t, h, http.MethodGet, "/", "").Body.String() +
		serve(t, h, http.MethodPost, "/window", question).Body.String()
	for _, name := range names {
		if strings.Contains(text, name) {
			t.Errorf("%s is in %s", name, text)
		}
	}
}

// With identities, keys have their names.
func TestIdentities(t *testing.T) {
	p := newShop(t, core.NewMemoryStore())
	h, latest := p.watch(t, dashboard.WithIdentities())
	p.allow(t, p.login, "203.0.113.77", 2)
	m := latest()
	if len(m.Hot) != 1 || m.Hot[0].Name != "203.0.113.77" || strings.Contains(m.Hot[0].ID, "203") {
		t.Fatalf("%+v", m.Hot)
	}
	if w := ask(t, h, fmt.Sprintf(`{"id":%q}`, m.Hot[0].ID)); w.Name != "203.0.113.77" || w.Limits[0].Key != w.Name {
		t.Errorf("%+v", w)
	}
}

// A long log is drawn with few marks, which have all of its units.
func TestLongLog(t *testing.T) {
	p := newShop(t, core.NewMemoryStore())
	h, latest := p.watch(t)
	l := newLimiter(t, core.PerHour(5000), core.ByText(), core.WithName("long"), core.WithObserver(p.board.Observe))
	p.allow(t, l, "k", 3000)
	w := ask(t, h, fmt.Sprintf(`{"id":%q}`, latest().Hot[0].ID))
	units := 0.0
	for _, m := range w.Limits[0].Marks {
		units += m[1]
	}
	if n := len(w.Limits[0].Marks); n > 400 || units != 3000 || w.Limits[0].Used != 3000 {
		t.Errorf("%d marks with %v units", n, units)
	}
}

// Keys are looked up by name, and logs are reset, by those alone who are authorised, from the page itself.
func TestAuthorisation(t *testing.T) {
	p := newShop(t, core.NewMemoryStore())
	p.allow(t, p.login, "203.0.113.77", 2)
	admin := func(r *http.Request) bool { return r.Header.Get("X-User") == "admin" }
	const byName = `{"policy":"login","key":"203.0.113.77"}`
	of := ask(t, dashboard.Handler(&p.board, dashboard.WithActions(anybody)), byName).Limits[0]
	reset := fmt.Sprintf(`%s,"limit":0,"name":%q,"of":%q}`, strings.TrimSuffix(byName, "}"), of.Name, of.Key)
	for _, test := range []struct {
		desc          string
		opts          []dashboard.Option
		header        []string
		window, reset int
	}{
		{"read-only", nil, []string{"X-User", "admin"}, 403, 403},
		{"somebody", []dashboard.Option{dashboard.WithActions(admin)}, nil, 403, 403},
		{
			"another site", []dashboard.Option{dashboard.WithActions(admin)},
			[]string{"X-User", "admin", "Sec-Fetch-Site", "cross-site"}, 403, 403,
		},
		{
			"another origin", []dashboard.Option{dashboard.WithActions(admin)},
			[]string{"X-User", "admin", "Origin", "https://evil.example"}, 403, 403,
		},
		{
			"an admin", []dashboard.Option{dashboard.WithActions(admin)},
			[]string{"X-User", "admin", "Sec-Fetch-Site", "same-origin"}, 200, 204,
		},
	} {
		h := dashboard.Handler(&p.board, test.opts...)
		if w := serve(t, h, http.MethodPost, "/window", byName, test.header...); w.Code != test.window {
			t.Errorf("%s: window %d, %s", test.desc, w.Code, w.Body)
		}
		if w := serve(t, h, http.MethodPost, "/reset", reset, test.header...); w.Code != test.reset {
			t.Errorf("%s: reset %d, %s", test.desc, w.Code, w.Body)
		}
		d, err := p.login.Peek(t.Context(), "203.0.113.77")
		if want := test.reset != 204; err != nil || (d.Remaining == 1) != want {
			t.Errorf("%s: %v, %v", test.desc, d, err)
		}
	}
	h := dashboard.Handler(&p.board, dashboard.WithActions(anybody))
	for question, status := range map[string]int{
		`{"policy":"none","key":"k"}`: 404,
		`{"policy":"login","key":""}`: 400,
		`{"id":"none"}`:               404,
		`{`:                           400,
		`{"key":"` + strings.Repeat("k", 5000) + `"}`: 400,
		`[]`: 400,
		``:   400,
		`{"policy":"login","key":"198.51.100.7"}`:               200,
		`{"policy":"order","key":"` + "\u0000\\u0000<b>" + `"}`: 400,
	} {
		if w := serve(t, h, http.MethodPost, "/window", question); w.Code != status {
			t.Errorf("%.60s: %d, %s", question, w.Code, w.Body)
		}
	}
}

// A website that has its name point to this machine is the same site to a browser, so only a check of the host stops
// it: a pattern of http.ServeMux is one. docs/dashboard.md says what proxies do to it.
func TestHosts(t *testing.T) {
	p := newShop(t, core.NewMemoryStore())
	open := dashboard.Handler(&p.board, dashboard.WithActions(anybody))
	local := http.NewServeMux()
	local.Handle("localhost/limits/", open)
	for _, test := range []struct {
		desc, host, origin, site string
		open, local              int
	}{
		{"the page itself", "localhost:8080", "http://localhost:8080", "same-origin", 200, 200},
		{"another site", "localhost:8080", "http://evil.example", "cross-site", 403, 403},
		{"a site with a name for this machine", "evil.example:8080", "http://evil.example:8080", "", 200, 404},
		{"HTTPS, a proxy with its own Host", "localhost:8080", "https://limits.example", "same-origin", 200, 200},
		{"HTTP, a proxy with its own Host", "localhost:8080", "http://limits.example", "", 403, 403},
		{"HTTP, a proxy that passes Host on", "limits.example", "http://limits.example", "", 200, 404},
	} {
		for h, want := range map[http.Handler]int{open: test.open, local: test.local} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+test.host+"/limits/window",
				strings.NewReader(`{"policy":"login","key":"203.0.113.77"}`))
			r.Header.Set("Origin", test.origin)
			if test.site != "" {
				r.Header.Set("Sec-Fetch-Site", test.site)
			}
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != want {
				t.Errorf("%s: %d, want %d: %s", test.desc, w.Code, want, w.Body)
			}
		}
	}
}

// The window of a banned key says so. A limiter that was removed is not looked up any more.
func TestBannedAndRemoved(t *testing.T) {
	var p shop
	h, latest := p.watch(t, dashboard.WithActions(anybody))
	l := newLimiter(t, core.PerMinute(1), core.ByText(), core.WithName("login"),
		core.WithBan(2, time.Minute, time.Hour), core.WithObserver(p.board.Observe))
	p.board.Add(l)
	const byName = `{"policy":"login","key":"k"}`
	p.allow(t, l, "k", 2)
	if ask(t, h, byName).Banned {
		t.Error("banned too early")
	}
	p.allow(t, l, "k", 3)
	if !ask(t, h, byName).Banned || !ask(t, h, fmt.Sprintf(`{"id":%q}`, latest().Hot[0].ID)).Banned {
		t.Error("the page does not say that the key is banned")
	}
	p.board.Forget("login")
	if w := serve(t, h, http.MethodPost, "/window", byName); w.Code != http.StatusNotFound {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}

// An error of the store is told by its class, since its text may have the key in it.
func TestStoreFails(t *testing.T) {
	fake := new(coretest.FakeStore)
	p := newShop(t, fake)
	h, latest := p.watch(t, dashboard.WithActions(anybody))
	p.allow(t, p.login, "203.0.113.77", 2)
	id := latest().Hot[0].ID
	fake.Fail(&store.StoreError{Err: errors.New("key 203.0.113.77 is away"), Class: "timeout"})
	for _, question := range []string{fmt.Sprintf(`{"id":%q}`, id), `{"policy":"login","key":"203.0.113.77"}`} {
		for _, path := range []string{"/window", "/reset"} {
			w := serve(t, h, http.MethodPost, path, question)
			text := strings.TrimSpace(w.Body.String())
			if w.Code != http.StatusBadGateway || text != "the store does not answer: timeout" {
				t.Errorf("%s %s: %d, %s", path, question, w.Code, w.Body)
			}
		}
	}
	fake.Fail(nil)
}
