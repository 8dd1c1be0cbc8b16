package dashboard

import (
	"embed"
	"errors"
	"net/http"
	"path"
	"strings"

	"github.com/sashlimit/sash/core"
)

//go:embed page
var files embed.FS

// Handler returns the page of a board. Mount it under any path that ends in a slash, with or without
// [http.StripPrefix]. It panics if an option or the board is nil.
//
// The page uses these paths below its own: board.js, board.css, events, window, reset, overrides, override and
// remove-override. A proxy in front of it must not buffer the response of events.
func Handler(b *Board, opts ...Option) http.Handler {
	h := &handler{board: b}
	if b == nil {
		h.isNil("dashboard.Handler", "the Board is nil", "pass the Board that observes the limiters")
	}
	for _, option := range opts {
		if option == nil {
			h.isNil("dashboard.Option", "the option is nil", "leave it out")
			continue
		}
		option(h)
	}
	if err := errors.Join(h.faults...); err != nil {
		panic(err) //nolint:forbidigo // a mistake in the program, which ends when it starts
	}
	return h
}

// route is what the handler does at a path below its own.
type route struct {
	method string
	serve  func(*handler, http.ResponseWriter, *http.Request)
}

var routes = map[string]route{
	"":          {http.MethodGet, asset("index.html", "text/html; charset=utf-8")},
	"board.js":  {http.MethodGet, asset("board.js", "text/javascript; charset=utf-8")},
	"board.css": {http.MethodGet, asset("board.css", "text/css; charset=utf-8")},
	"events":    {http.MethodGet, (*handler).stream},
	"window":    answered(false, (*handler).window),
	"reset":     answered(true, (*handler).reset),

	"overrides":       answered(false, (*handler).overrides),
	"override":        answered(true, (*handler).override),
	"remove-override": answered(true, (*handler).removeOverride),
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
			"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		"X-Content-Type-Options":     "nosniff",
		"Referrer-Policy":            "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin",
		"Cache-Control":              "no-store",
	} {
		w.Header().Set(name, value)
	}
	_, name := path.Split(r.URL.Path)
	to, known := routes[name]
	if full, _, _ := strings.Cut(r.RequestURI, "?"); !strings.HasSuffix(full, "/") &&
		(r.URL.Path == "" || !known && !strings.Contains(name, ".")) {
		// The page finds the rest below a slash. Its path is relative, because a prefix may have been removed from r's.
		w.Header().Set("Location", "./"+path.Base(full)+"/")
		w.WriteHeader(http.StatusTemporaryRedirect)
		return
	}
	switch {
	case !known:
		http.NotFound(w, r)
	case r.Method != to.method && (r.Method != http.MethodHead || to.method != http.MethodGet):
		w.Header().Set("Allow", to.method)
		http.Error(w, "use "+to.method, http.StatusMethodNotAllowed)
	case h.origins.Check(r) != nil:
		http.Error(w, "this request comes from a page of another site", http.StatusForbidden)
	default:
		to.serve(h, w, r)
	}
}

func asset(name, contentType string) func(*handler, http.ResponseWriter, *http.Request) {
	return func(_ *handler, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		http.ServeFileFS(w, r, files, "page/"+name)
	}
}

// Option configures [Handler].
type Option func(*handler)

// WithIdentities shows keys as they are, such as addresses and names of customers, in place of hashes. They are usually
// personal data.
func WithIdentities() Option { return func(h *handler) { h.identities = true } }

// WithActions lets those for whom authorise returns true reset the log of a key, look up a key by its name, and set and
// remove overrides ([core.Limiter.Override]). It is called for each such request, and for each page to know whether to
// show the buttons. Requests from pages of other sites are refused before it is called.
func WithActions(authorise func(*http.Request) bool) Option {
	return func(h *handler) {
		if authorise == nil {
			h.isNil("WithActions", "the function is nil",
				"pass a function that returns who may act, or leave the option out")
			return
		}
		h.authorise = authorise
	}
}

// handler serves the page of a board.
type handler struct {
	board      *Board
	identities bool
	authorise  func(*http.Request) bool // or nil
	faults     []error
	origins    http.CrossOriginProtection
}

// isNil notes what must not be nil.
func (h *handler) isNil(option, problem, remedy string) {
	h.faults = append(h.faults, &core.ConfigError{Option: option, Value: "nil", Problem: problem, Remedy: remedy})
}

// mayAct reports whether a request may use actions.
func (h *handler) mayAct(r *http.Request) bool { return h.authorise != nil && h.authorise(r) }
