package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/sashlimit/sash/core"
)

// overrides is what operators use: POST sets a quota, DELETE ends it, GET lists all.
func overrides(limiter *core.Limiter) http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, err error) {
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest) // with each mistake, and what would be right
		}
	}
	mux.HandleFunc("POST /overrides", func(w http.ResponseWriter, r *http.Request) {
		limit, err := core.ParseLimit(r.FormValue("limit"))
		if err == nil {
			var length time.Duration
			length, err = time.ParseDuration(r.FormValue("for"))
			if err == nil {
				err = limiter.Override(r.Context(), r.FormValue("customer"), core.Override{
					Limits: core.Limits{limit}, Until: time.Now().Add(length), Note: r.FormValue("note"),
				})
			}
		}
		answer(w, err)
	})
	mux.HandleFunc("DELETE /overrides/{customer}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, limiter.RemoveOverride(r.Context(), r.PathValue("customer")))
	})
	mux.HandleFunc("GET /overrides", func(w http.ResponseWriter, r *http.Request) {
		all, err := limiter.Overrides(r.Context())
		answer(w, err)
		for _, o := range all {
			fmt.Fprintln(w, o.Key, o.Limits, o.Until.Format(time.DateOnly), o.Note)
		}
	})
	return mux
}
