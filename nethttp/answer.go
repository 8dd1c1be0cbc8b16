package nethttp

import (
	"net/http"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

func answerDenied(w http.ResponseWriter, _ *http.Request, d core.Decision) { write(w, d.Problem()) }

func answerError(w http.ResponseWriter, _ *http.Request, err error) { write(w, core.ProblemOf(err)) }

func write(w http.ResponseWriter, p adapter.Problem) {
	p.SetHeaders(w.Header())
	w.WriteHeader(p.Status)
	w.Write(p.JSON())
}
