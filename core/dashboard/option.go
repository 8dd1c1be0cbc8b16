package dashboard

import (
	"net/http"

	"github.com/sashlimit/sash/core"
)

// Option configures [Handler].
type Option func(*handler)

// WithIdentities shows keys as they are, such as addresses and names of customers, in place of hashes. They are usually
// personal data.
func WithIdentities() Option { return func(h *handler) { h.identities = true } }

// WithActions lets those for whom authorise returns true reset the log of a key, and look up a key by its name. It is
// called for each such request, and for each page to know whether to show the buttons. Requests from pages of other
// sites are refused before it is called.
func WithActions(authorise func(*http.Request) bool) Option {
	return func(h *handler) {
		if authorise == nil {
			h.faults = append(h.faults, &core.ConfigError{
				Option: "WithActions", Value: "nil", Problem: "the function is nil",
				Remedy: "pass a function that returns who may act, or leave the option out",
			})
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

// mayAct reports whether a request may use actions.
func (h *handler) mayAct(r *http.Request) bool { return h.authorise != nil && h.authorise(r) }
