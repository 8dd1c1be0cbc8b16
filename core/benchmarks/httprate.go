package main

import (
	"context"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/go-chi/httprate"

	"github.com/sashlimit/sash/chilimit"
	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/nethttp"
)

var httpratePeer = peer{
	"httprate", "github.com/go-chi/httprate", window,
	"the counts of two windows, of which it weighs the earlier one",
}

func httprateCounter() contestant {
	return contestant{
		peer:    httpratePeer,
		forgets: true,
		make: func(l limit) (limiter, error) {
			noHeaders := httprate.WithResponseHeaders(httprate.ResponseHeaders{})
			lim := httprate.NewRateLimiter(l.quota, l.window, noHeaders)
			r, err := http.NewRequest(http.MethodGet, "/", http.NoBody)
			return limiter{check: func(_ context.Context, key string) (bool, error) {
				return !lim.OnLimit(nil, r, key), nil // without headers it has nothing to write
			}}, err
		},
	}
}

var answer = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })

var onNetHTTP = framework{
	name:  "net/http",
	other: httpratePeer,
	bare:  func() request { return drive(answer) },
	sash:  func(p core.Policy) request { return drive(nethttp.New(p, core.ByIP())(answer)) },
	limit: func(l limit) request {
		//nolint:staticcheck // deprecated, but the cheapest form; onChi has the other
		return drive(httprate.LimitByIP(l.quota, l.window)(answer))
	},
}

var onChi = framework{
	name:  "chi",
	other: httpratePeer,
	bare:  func() request { return chiApp() },
	sash:  func(p core.Policy) request { return chiApp(chilimit.New(p, core.ByIP())) },
	// This is what LimitByIP's documentation says to write instead of it.
	limit: func(l limit) request {
		key := func(r *http.Request) (string, error) {
			return httprate.CanonicalizeIP(middleware.GetClientIP(r.Context())), nil
		}
		return chiApp(middleware.ClientIPFromRemoteAddr, httprate.LimitBy(l.quota, l.window, key))
	},
}

func chiApp(limits ...func(http.Handler) http.Handler) request {
	r := chi.NewRouter()
	r.Use(limits...)
	r.Get("/", answer)
	return drive(r)
}
