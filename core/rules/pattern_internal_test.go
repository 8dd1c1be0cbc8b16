package rules

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/sashlimit/sash/core/adapter"
)

func patternOf(t *testing.T, text string) *pattern {
	t.Helper()
	p, problem := parsePattern(text)
	if p == nil {
		t.Fatal(problem)
	}
	return p
}

// allPatterns are all patterns of up to three segments, with each end.
var allPatterns = func() (all []string) {
	open := []string{""}
	for _, wildcard := range []string{"/{x}", "/{y}", "/{z}", ""} {
		var longer []string
		for _, p := range open {
			all = append(all, p+"/", p+"/{$}", p+"/{rest...}")
			if p != "" {
				all = append(all, p)
			}
			longer = append(longer, p+"/a", p+"/b", p+wildcard)
		}
		open = longer
	}
	return all
}()

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

// found is the handler of a pattern.
type found struct{ http.Handler }

// A path matches as it does in http.ServeMux.
func TestPathsMatchAsInServeMux(t *testing.T) {
	paths := allPaths()
	for _, text := range allPatterns {
		pattern, mux := patternOf(t, text), http.NewServeMux()
		mux.Handle(text, found{})
		for _, path := range paths {
			h, _ := mux.Handler(&http.Request{Method: http.MethodGet, Host: "h", URL: &url.URL{Path: path}})
			_, want := h.(found) // and no redirect
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
	paths := allPaths()
	patterns, matches := make([]*pattern, len(allPatterns)), make([][]bool, len(allPatterns))
	for i, text := range allPatterns {
		patterns[i] = patternOf(t, text)
		for _, path := range paths {
			matches[i] = append(matches[i], patterns[i].matches(reading{path, false}, new(adapter.Target)))
		}
	}
	for i, p := range patterns {
		for k, q := range patterns {
			covers := true
			for at := range paths {
				covers = covers && (matches[i][at] || !matches[k][at])
			}
			if p.covers(q) != covers {
				t.Fatalf("%s and %s: covers %v, want %v", allPatterns[i], allPatterns[k], !covers, covers)
			}
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
