package nethttp

import (
	"net/http"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

func answerDenied(w http.ResponseWriter, r *http.Request, d core.Decision) { write(w, r, d.Problem()) }

func answerError(w http.ResponseWriter, r *http.Request, err error) { write(w, r, core.ProblemOf(err)) }

func write(w http.ResponseWriter, r *http.Request, p adapter.Problem) {
	if p.AnswerRPC(w, r) {
		return
	}
	p.SetHeaders(w.Header())
	w.WriteHeader(p.Status)
	w.Write(p.JSON())
}
