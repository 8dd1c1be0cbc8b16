package rules

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/testlen"
)

func patternOf(t *testing.T, text string) *pattern {
	t.Helper()
	p, problem, remedy := parsePattern(text)
	if p == nil {
		t.Fatal(problem, remedy)
	}
	return p
}

var segments = []string{"a", "b", "{x}"}

func randomPattern(r *rand.Rand) string {
	var b strings.Builder
	names := []string{"{x}", "{y}", "{z}"}
	for range r.IntN(4) {
		if s := segments[r.IntN(len(segments))]; s == "{x}" {
			b.WriteString("/" + names[0])
			names = names[1:]
		} else {
			b.WriteString("/" + s)
		}
	}
	switch r.IntN(4) {
	case 0:
		b.WriteString("/")
	case 1:
		b.WriteString("/{$}")
	case 2:
		b.WriteString("/{rest...}")
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}

// allPaths are all cleaned paths of up to four segments.
func allPaths() (all []string) {
	open := []string{""}
	for range 5 {
		var longer []string
		for _, p := range open {
			if all = append(all, p+"/"); p != "" {
				all = append(all, p)
			}
			for _, s := range []string{"a", "b", "c"} {
				longer = append(longer, p+"/"+s)
			}
		}
		open = longer
	}
	return all
}

// A path matches as it does in http.ServeMux.
func TestPathsMatchAsInServeMux(t *testing.T) {
	testlen.SkipRace(t)
	r := rand.New(rand.NewPCG(1, rand.Uint64()))
	paths := allPaths()
	for range 1000 {
		text := randomPattern(r)
		pattern, mux := patternOf(t, text), http.NewServeMux()
		mux.HandleFunc(text, func(http.ResponseWriter, *http.Request) {})
		for _, path := range paths {
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			want := w.Code == http.StatusOK
			if got := pattern.matches(reading{path, false}, new(adapter.Target)); got != want {
				t.Fatalf("%s on %s: %v, want %v", text, path, got, want)
			}
		}
	}
}

func TestCleanPath(t *testing.T) {
	for path, want := range map[string]string{
		"": "/", "/": "/", "a": "/a", "//": "/", "/a//b": "/a/b", "/a/./b/": "/a/b/", "/a/..": "/", "/../a": "/a",
		"/a/b/../": "/a/", "/.well-known/x": "/.well-known/x", "/a/...": "/a/...", "/a/%2e": "/a/%2e",
	} {
		if got := cleanPath(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

// covers is what all paths say.
func TestPatternsAmongEachOther(t *testing.T) {
	testlen.SkipRace(t)
	r := rand.New(rand.NewPCG(2, rand.Uint64()))
	paths := allPaths()
	for range 3000 {
		a, b := randomPattern(r), randomPattern(r)
		p, q := patternOf(t, a), patternOf(t, b)
		covers := true
		for _, path := range paths {
			of, r := new(adapter.Target), reading{path, false}
			covers = covers && (p.matches(r, of) || !q.matches(r, of))
		}
		if p.covers(q) != covers {
			t.Fatalf("%s and %s: covers %v, want %v", a, b, p.covers(q), covers)
		}
	}
}

func TestHostOf(t *testing.T) {
	for host, want := range map[string]string{
		"": "", "example.com": "example.com", "example.com:80": "example.com", "example.com.": "example.com",
		"[::1]:80": "::1", "[::1]": "::1", "::1": "::1", ":80": "", "127.0.0.1:1": "127.0.0.1",
		"example.com:80:80": "example.com", "example.com.:x:": "example.com", "[::1]:80:80": "::1",
	} {
		if got := hostOf(host); got != want {
			t.Errorf("%q: %q, want %q", host, got, want)
		}
	}
}
