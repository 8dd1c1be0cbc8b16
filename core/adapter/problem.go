package adapter

import (
	"encoding/json"
	"strconv"
	"time"
)

// ProblemType is the media type of a [Problem] (RFC 9457).
const ProblemType = "application/problem+json"

// Problem is the body of a refusal (RFC 9457). It says what clients should do, and contains no identity, no key and
// nothing about the store.
type Problem struct {
	Type       string // a URI, or "about:blank"
	Title      string
	Status     int // the HTTP status that goes with it
	Detail     string
	Violated   []string // "violated-policies", of the RateLimit draft
	RetryAfter int64    // seconds for a Retry-After field that is not set yet; 0 means none

	// Wait is how long to wait, for [Problem.AnswerRPC]: 0 if that is not known, and negative if no wait helps.
	Wait time.Duration
}

// SetHeaders writes the fields that go with the body.
func (p Problem) SetHeaders(h HeaderMap) {
	h.Set("Content-Type", ProblemType)
	p.SetRetryAfter(h)
}

// SetRetryAfter writes the field Retry-After if RetryAfter is not 0. It is for answers with another body.
func (p Problem) SetRetryAfter(h HeaderMap) {
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(p.RetryAfter, 10))
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
	before := `,"violated-policies":[`
	for _, name := range p.Violated {
		b = appendString(append(b, before...), name)
		before = ","
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

// escaped reports which bytes JSON may write differently: all except printable ASCII, and two characters of that. A
// table is faster than comparisons.
var escaped = func() (is [256]bool) {
	for c := range is {
		is[c] = c < ' ' || c > '~' || c == '"' || c == '\\'
	}
	return is
}()
