package chilimit

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
)

// isMount reports whether the request is still on its way through a mounted router. chi has then set RoutePath to
// what is left for that router, and has emptied the wildcard's parameter, but not the request's own value of it.
func isMount(c *chi.Context, r *http.Request) bool {
	last := c.RoutePatterns[len(c.RoutePatterns)-1]
	switch {
	case strings.HasSuffix(last, "*"):
		return c.URLParam("*") == "" && (r.PathValue("*") != "" || c.RoutePath == "/" && len(c.RoutePatterns) == 1)
	case c.RoutePath == "/": // of the mounted router's own routes only "/" and parameters match that
		return last != "/" && !strings.HasSuffix(last, "}")
	}
	return false
}

// isRoute reports whether a request for "/" is at a route "/*", and not on its way through a mounted router. The two
// look the same if CleanPath or StripSlashes has set RoutePath.
func isRoute(c *chi.Context, r *http.Request) bool {
	if len(c.RoutePatterns) > 1 || c.RoutePatterns[0] != "/*" || r.PathValue("*") != "" || c.Routes == nil {
		return false
	}
	is := func(route chi.Route) bool { return route.Pattern == "/*" && route.SubRoutes == nil }
	return slices.ContainsFunc(c.Routes.Routes(), is)
}

// routed returns the path that earlier middleware and routers have left for routing, or "" if that is the path that
// was sent.
func routed(r *http.Request) string {
	c := chi.RouteContext(r.Context())
	if c == nil || c.RoutePath == "" {
		return ""
	}
	above := len(c.RoutePatterns)
	if above > 0 && !isMount(c, r) {
		above-- // the last one is that of the route
	}
	var room [128]byte
	path := append(appendMounts(room[:0], c, c.RoutePatterns[:above]), c.RoutePath...)
	if string(path) == r.URL.Path || string(path) == r.URL.RawPath {
		return ""
	}
	return string(path)
}

// appendMounts appends the path at which a router is mounted, by the patterns of the routers above and what their
// parameters have found.
func appendMounts(path []byte, c *chi.Context, patterns []string) []byte {
	values := c.URLParams.Values
	for _, pattern := range patterns {
		pattern, wild := strings.CutSuffix(pattern, "*")
		for pattern = strings.TrimSuffix(pattern, "/"); pattern != ""; {
			before, after, param := strings.Cut(pattern, "{")
			path = append(path, before...)
			if param && len(values) > 0 {
				path, values = append(path, values[0]...), values[1:]
			}
			pattern = afterBrace(after)
		}
		if wild && len(values) > 0 {
			values = values[1:]
		}
	}
	return path
}

// afterBrace returns what follows the brace that ends a parameter, whose expression may have others within.
func afterBrace(s string) string {
	for i, depth := 0, 1; i < len(s); i++ {
		switch s[i] {
		case '{':
			depth++
		case '}':
			depth--
		}
		if depth == 0 {
			return s[i+1:]
		}
	}
	return ""
}
