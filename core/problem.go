package core

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/sashlimit/sash/core/adapter"
)

// ProblemType is the media type of a [Problem] (RFC 9457).
const ProblemType = "application/problem+json"

const problemBase = "https://iana.org/assignments/http-problem-types#"

// Problem is the body of a refusal (RFC 9457). It tells clients what to do and
// nothing about identities, keys or the store.
type Problem struct {
	Type       string // a URI, or "about:blank"
	Title      string
	Status     int // the HTTP status that goes with it
	Detail     string
	Violated   []string // "violated-policies", of the RateLimit draft
	RetryAfter int64    // seconds for a Retry-After field that is not set yet; 0 means none
}

// Problem is what a denied client is told, by default.
func (d *Decision) Problem() Problem {
	p := Problem{
		Type:     problemBase + "quota-exceeded",
		Title:    "Quota Exceeded",
		Status:   http.StatusTooManyRequests,
		Violated: d.Violated,
	}
	if d.Banned {
		p.Type, p.Title, p.Violated = problemBase+"abnormal-usage-detected", "Abnormal Usage Detected", nil
	}
	switch s := max(1, seconds(d.RetryAfter)); {
	case d.never():
		p.Detail = "This request costs more than the whole quota, so it can never pass."
	case s == 1:
		p.Detail = "Try again in 1 second."
	default:
		p.Detail = "Try again in " + strconv.FormatInt(s, 10) + " seconds."
	}
	return p
}

// ProblemOf is what a client is told, by default, when [Limiter.Check] fails:
// 400 without a key, 403 for who is on a deny list, 503 without a store, and 500 when a callback failed. The text
// of err stays inside.
func ProblemOf(err error) Problem {
	var limited *LimitedError
	var store *StoreError
	switch {
	case errors.As(err, &limited):
		return limited.Decision.Problem()
	case errors.As(err, &store):
		return Problem{
			Type:       problemBase + "temporary-reduced-capacity",
			Title:      "Temporary Reduced Capacity",
			Status:     http.StatusServiceUnavailable,
			Detail:     "Try again in 1 second.",
			RetryAfter: 1,
		}
	case errors.Is(err, ErrForbidden):
		return Problem{Type: "about:blank", Title: "Forbidden", Status: http.StatusForbidden}
	case errors.Is(err, ErrNoKey):
		return Problem{Type: "about:blank", Title: "Bad Request", Status: http.StatusBadRequest, Detail: "The request does not say whose quota it draws from."}
	}
	return Problem{Type: "about:blank", Title: "Internal Server Error", Status: http.StatusInternalServerError}
}

// SetHeaders writes the fields that go with the body.
func (p Problem) SetHeaders(h adapter.HeaderMap) {
	h.Set(fieldType, ProblemType)
	if p.RetryAfter > 0 {
		h.Set(fieldRetryAfter, strconv.FormatInt(p.RetryAfter, 10))
	}
}

// JSON is the body.
func (p Problem) JSON() []byte {
	b := make([]byte, 0, 256)
	b = appendString(append(b, `{"type":`...), p.Type)
	b = appendString(append(b, `,"title":`...), p.Title)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(p.Status), 10)
	if p.Detail != "" {
		b = appendString(append(b, `,"detail":`...), p.Detail)
	}
	for i, name := range p.Violated {
		if i == 0 {
			b = append(b, `,"violated-policies":[`...)
		} else {
			b = append(b, ',')
		}
		b = appendString(b, name)
	}
	if len(p.Violated) > 0 {
		b = append(b, ']')
	}
	return append(b, '}')
}

func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if escaped[s[i]] {
			text, _ := json.Marshal(s) //nolint:errchkjson // a string has no error
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"') // as everything is that sash writes itself
}

// escaped is which bytes JSON may write differently: all but printable ASCII, of which two. A table is looked up in half the time.
var escaped = func() (is [256]bool) {
	for c := range is {
		is[c] = c < ' ' || c > '~' || c == '"' || c == '\\'
	}
	return is
}()
