package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/dashboard"
)

// most returns how many requests each algorithm has admitted in one window, after traffic of a kind.
func most(t *testing.T, kind string) map[string]int {
	t.Helper()
	most := map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		var board dashboard.Board
		d, err := newDemo(board.Observe)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second) // somewhere in a period
		traffic[kind](d)
		for _, l := range d.now() {
			most[l.Name] = l.Most
		}
		time.Sleep(20 * time.Minute) // until nothing runs any more
	})
	return most
}

// At the edge of a period the fixed window admits twice the quota, and the log never more than it.
func TestTraffic(t *testing.T) {
	for kind, want := range map[string]map[string]int{
		"steady": {"sliding-log": 10},
		"burst":  {"sliding-log": 10, "fixed-window": 10, "sliding-counter": 10, "token-bucket": 10},
		"flood":  {"sliding-log": 10},
		"edge":   {"sliding-log": 10, "fixed-window": 20, "token-bucket": 11},
	} {
		got := most(t, kind)
		for name, n := range want {
			if got[name] != n {
				t.Errorf("%s, %s: %d admitted in a window, want %d", kind, name, got[name], n)
			}
		}
	}
}

// A page that is loaded again is told what was sent last, and where periods begin.
func TestMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var board dashboard.Board
		d, err := newDemo(board.Observe)
		if err != nil {
			t.Fatal(err)
		}
		if m := d.message(); m.Traffic != nil || d.start("none") {
			t.Errorf("%+v", m.Traffic)
		}
		time.Sleep(3 * time.Second)
		d.start("edge")
		d.start("burst")
		time.Sleep(time.Second)
		if m := d.message(); *m.Traffic != (trafficMessage{Kind: "burst", Age: 1, Running: 1}) || m.Since != 4 {
			t.Errorf("%+v, %v s since a period began", m.Traffic, m.Since)
		}
		time.Sleep(20 * time.Minute)
		if m := d.message(); m.Traffic.Running != 0 || m.Traffic.Kind != "burst" {
			t.Errorf("%+v", m.Traffic)
		}
	})
}

// No page of another site may use the example by a name of its own for this machine.
func TestOnlyLocal(t *testing.T) {
	h := onlyLocal(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	for host, status := range map[string]int{
		"127.0.0.1:8080": 200, "localhost:8080": 200, "localhost": 200, "evil.example:8080": 404, "192.0.2.1": 404,
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/limits/", nil)
		r.Host = host
		if h.ServeHTTP(w, r); w.Code != status {
			t.Errorf("%s: %d, want %d", host, w.Code, status)
		}
	}
}

func TestHandler(t *testing.T) {
	var board dashboard.Board
	d, err := newDemo(board.Observe)
	if err != nil {
		t.Fatal(err)
	}
	h := d.handler(&board)
	for path, status := range map[string]int{
		"GET /": 200, "GET /page.js": 200, "GET /lanes": 200, "GET /limits/": 200,
		"POST /traffic/burst": 202, "POST /traffic/none": 404, "GET /none": 404,
	} {
		method, path, _ := strings.Cut(path, " ")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		if w.Code != status {
			t.Errorf("%s %s: %d, want %d", method, path, w.Code, status)
		}
	}
}
