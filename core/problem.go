package core

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/sashlimit/sash/core/adapter"
)

const problemBase = "https://iana.org/assignments/http-problem-types#"

// For adapters: Problem returns the default problem document for a denied request.
func (d *Decision) Problem() adapter.Problem {
	p := adapter.Problem{
		Type:     problemBase + "quota-exceeded",
		Title:    "Quota Exceeded",
		Status:   http.StatusTooManyRequests,
		Violated: d.Violated,
	}
	if d.Banned {
		p.Type, p.Title, p.Violated = problemBase+"abnormal-usage-detected", "Abnormal Usage Detected", nil
	}
	switch s := max(1, seconds(d.RetryAfter)); {
	case d.plan != nil && len(d.plan.Rules) > 0 && d.rule().Detail != "":
		p.Detail = d.rule().Detail
	case d.plan != nil && d.awaitsPermit() && !d.Banned:
		p.Detail = "Try again when another request has ended."
	case d.never():
		p.Detail = "This request costs more than the whole quota, so it can never pass."
	case s == 1:
		p.Detail = "Try again in 1 second."
	default:
		p.Detail = "Try again in " + strconv.FormatInt(s, 10) + " seconds."
	}
	return p
}

// For adapters: ProblemOf returns the default problem document for an error of [Limiter.Check]: 400 without a key, 403
// for a client on a deny list, 503 if the store does not answer, and 500 if a callback failed. It does not contain the
// text of err.
func ProblemOf(err error) adapter.Problem {
	var limited *LimitedError
	var store *StoreError
	switch {
	case errors.As(err, &limited):
		return limited.Decision.Problem()
	case errors.As(err, &store):
		return adapter.Problem{
			Type:       problemBase + "temporary-reduced-capacity",
			Title:      "Temporary Reduced Capacity",
			Status:     http.StatusServiceUnavailable,
			Detail:     "Try again in 1 second.",
			RetryAfter: 1,
		}
	case errors.Is(err, ErrForbidden):
		return adapter.Problem{Type: "about:blank", Title: "Forbidden", Status: http.StatusForbidden}
	case errors.Is(err, ErrNoKey):
		return adapter.Problem{
			Type:   "about:blank",
			Title:  "Bad Request",
			Status: http.StatusBadRequest,
			Detail: "The request does not say whose quota it draws from.",
		}
	}
	return adapter.Problem{Type: "about:blank", Title: "Internal Server Error", Status: http.StatusInternalServerError}
}
