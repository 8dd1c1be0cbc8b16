package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/rules"
)

// service answers questions about requests.
type service struct {
	set     *rules.Set
	limiter *core.Limiter
}

func newService(file string, opts ...core.Option) (*service, error) {
	// The data of a request serves claims too: whoever calls has verified them.
	claims := rules.WithClaims(func(claim string) core.Key { return core.ByValue(claim) })
	set, err := rules.Load(file, claims, rules.WithOptions(opts...))
	if err != nil {
		return nil, err
	}
	limiter, err := set.Limiter()
	return &service{set, limiter}, err
}

// ServeHTTP needs no http.ServeMux, which redirects requests with paths such as /authz//login.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/check":
		s.check(w, r)
	case r.URL.Path == "/auth":
		s.auth(w, r)
	case strings.HasPrefix(r.URL.Path, "/authz/"):
		s.authorize(w, fromEnvoy(r), http.StatusTooManyRequests)
	default:
		http.NotFound(w, r)
	}
}

func (s *service) check(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "send a POST", http.StatusMethodNotAllowed)
		return
	}
	q, err := fromJSON(w, r)
	if err != nil {
		badRequest(w, err)
		return
	}
	d, err := s.decide(w, q)
	if err != nil {
		answer(w, core.ProblemOf(err))
		return
	}
	body, err := json.Marshal(asJSON(d))
	if err != nil {
		answer(w, core.ProblemOf(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if !d.Allowed {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	w.Write(append(body, '\n'))
}

// auth answers a sub-request of nginx or Traefik.
func (s *service) auth(w http.ResponseWriter, r *http.Request) {
	q, err := fromProxy(r)
	if err != nil {
		badRequest(w, err)
		return
	}
	denied := http.StatusTooManyRequests
	if r.URL.Query().Get("denied") == "403" {
		denied = http.StatusForbidden
	}
	s.authorize(w, q, denied)
}

func (s *service) authorize(w http.ResponseWriter, q *request, denied int) {
	d, err := s.decide(w, q)
	switch {
	case err != nil:
		answer(w, core.ProblemOf(err))
	case !d.Allowed:
		p := d.Problem()
		p.Status = denied
		answer(w, p)
	}
}

// decide asks the rules and sets the header. Serve ends at once what the decision holds, because nobody tells when the
// request ends.
func (s *service) decide(w http.ResponseWriter, q *request) (core.Decision, error) {
	d, err := s.limiter.Check(q)
	d.SetHeaders(w.Header())
	if err == nil && d.Allowed {
		d.Serve(func() int { return http.StatusOK })
	}
	return d, err
}

// decision is a core.Decision as JSON.
type decision struct {
	Allowed    bool     `json:"allowed"`
	Policy     string   `json:"policy"`      // the rule
	Remaining  *int     `json:"remaining"`   // null if no limit was asked
	RetryAfter int64    `json:"retry_after"` // in seconds
	Violated   []string `json:"violated"`
}

func asJSON(d core.Decision) decision {
	seconds := (d.RetryAfter + time.Second - 1) / time.Second // rounded up
	made := decision{d.Allowed, d.Policy, nil, int64(seconds), append([]string{}, d.Violated...)}
	if len(d.Limits()) > 0 {
		made.Remaining = &d.Remaining
	}
	return made
}

func badRequest(w http.ResponseWriter, err error) {
	answer(w, adapter.Problem{
		Type: "about:blank", Title: "Bad Request", Status: http.StatusBadRequest, Detail: err.Error(),
	})
}

func answer(w http.ResponseWriter, p adapter.Problem) {
	p.SetHeaders(w.Header())
	w.WriteHeader(p.Status)
	w.Write(p.JSON())
}
