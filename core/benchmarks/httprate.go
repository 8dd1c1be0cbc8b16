package benchmarks

import (
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/go-chi/httprate"

	"github.com/sashlimit/sash/chilimit"
	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/nethttp"
)

// httprate counts in two fixed windows, of which it weighs the earlier one: an
// estimate of a sliding window.

var answer = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })

var onNetHTTP = framework{
	name:  "net/http",
	other: "httprate",
	bare:  func() request { return drive(answer) },
	sash:  func(p core.Policy) request { return drive(nethttp.New(p, core.ByIP())(answer)) },
	limit: func(quota int, window time.Duration) request {
		return drive(httprate.LimitByIP(quota, window)(answer)) //nolint:staticcheck // deprecated, and the cheapest form; chi has the other
	},
}

var onChi = framework{
	name:  "chi",
	other: "httprate",
	bare:  func() request { return chiApp() },
	sash:  func(p core.Policy) request { return chiApp(chilimit.New(p, core.ByIP())) },
	// This is what LimitByIP's documentation says to write instead of it.
	limit: func(quota int, window time.Duration) request {
		return chiApp(middleware.ClientIPFromRemoteAddr, httprate.LimitBy(quota, window, func(r *http.Request) (string, error) {
			return httprate.CanonicalizeIP(middleware.GetClientIP(r.Context())), nil
		}))
	},
}

func chiApp(limits ...func(http.Handler) http.Handler) request {
	r := chi.NewRouter()
	r.Use(limits...)
	r.Get("/", answer)
	return drive(r)
}
