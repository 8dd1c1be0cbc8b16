package core

import (
	"errors"
	"net/http"
	"strconv"
	"time"
	"unsafe"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/engine"
)

// Headers is which header fields of a response describe the quota.
type Headers int

const (
	// HeadersDraft is RateLimit and RateLimit-Policy of the IETF draft draft-ietf-httpapi-ratelimit-headers. It is the
	// default. The draft may still rename its parameters; HeadersDraft follows it.
	HeadersDraft Headers = iota
	// HeadersLegacy is X-RateLimit-Limit, -Remaining and -Reset (seconds from now) of the limit with the least left.
	HeadersLegacy
	// HeadersBoth is both.
	HeadersBoth
	// HeadersNone is neither. A denial still has Retry-After.
	HeadersNone
)

// WithHeaders chooses the header fields of responses. The default is [HeadersDraft].
func WithHeaders(h Headers) Option {
	g := given{name: "WithHeaders", answers: true}
	return g.optionIf(HeadersDraft <= h && h <= HeadersNone, strconv.Itoa(int(h)), "there is no such value",
		"choose HeadersDraft, HeadersLegacy, HeadersBoth or HeadersNone", func(c *config) {
			c.draft, c.legacy = h == HeadersDraft || h == HeadersBoth, h == HeadersLegacy || h == HeadersBoth
		})
}

// Names in the canonical form of http.Header, so that Set need not convert them.
const (
	fieldPolicy     = "Ratelimit-Policy"
	fieldRateLimit  = "Ratelimit"
	fieldLimit      = "X-Ratelimit-Limit"
	fieldRemaining  = "X-Ratelimit-Remaining"
	fieldReset      = "X-Ratelimit-Reset"
	fieldRetryAfter = "Retry-After"
	fieldCache      = "Cache-Control"
)

// For adapters: SetHeaders writes the header fields that describe the quota. For a denial it also writes Retry-After,
// which is exact and rounded up to whole seconds, and Cache-Control (RFC 6585: a 429 must not be stored). If another
// limiter has written its fields before, they list both.
func (d *Decision) SetHeaders(h adapter.HeaderMap) {
	if !d.refused() && !d.counts() {
		return
	}
	if !d.Allowed {
		d.setRetry(h)
		if d.refused() || !d.limiter.draft { // Retry-After may be earlier than the "t" of an outer limiter
			remove(h, fieldRateLimit)
		}
	}
	if d.refused() { // no limit has denied
		return
	}
	if d.limiter.draft && d.result.Set.Header != "" { // an override may let all pass
		d.setDraft(h)
	}
	if d.limiter.legacy {
		d.setLegacy(h)
	}
}

func (d *Decision) setRetry(h adapter.HeaderMap) {
	var buf [20]byte
	retry := buf[:0]
	if d.RetryAfter > 0 {
		retry = strconv.AppendInt(retry, engine.Seconds(d.RetryAfter), 10)
	}
	setFields(h, fieldCache, "no-store", fieldRetryAfter, retry)
}

func (d *Decision) setDraft(h adapter.HeaderMap) {
	policy := d.result.Set.Header
	var buf [64]byte
	b := buf[:0]
	fields, ok := h.(http.Header)
	if !ok || fields[fieldPolicy] != nil { // Get takes longer than all the rest
		if before := h.Get(fieldPolicy); before != "" {
			policy = before + ", " + policy
			// A denial lists only the limits that denied, because Retry-After must
			// not be earlier than any "t" beside it.
			if d.Allowed {
				b = append(b, h.Get(fieldRateLimit)...)
			}
		}
	}
	b = d.result.AppendRateLimit(b)
	setFields(h, fieldPolicy, policy, fieldRateLimit, b) // an empty list is not sent (RFC 9651, 3.1)
}

// setFields sets two fields in the canonical form, the second one unless it is empty. In an [http.Header] it does the
// same as Set, with one allocation if text is short. Other middleware may write to these slices, so they must not be
// shared.
func setFields(h adapter.HeaderMap, first, value, second string, text []byte) {
	fields, ok := h.(http.Header)
	if !ok {
		h.Set(first, value)
		if len(text) > 0 {
			h.Set(second, string(text))
		}
		return
	}
	own := new(struct {
		values [2]string
		text   [64]byte
	})
	own.values[0] = value
	fields[first] = own.values[0:1:1]
	if b := append(own.text[:0], text...); len(b) > 0 {
		own.values[1] = unsafe.String(&b[0], len(b)) //nolint:gosec // b is not written to again
		fields[second] = own.values[1:2:2]
	}
}

func (d *Decision) setLegacy(h adapter.HeaderMap) {
	i := d.result.Tightest()
	if i < 0 {
		return
	}
	left := d.result.Left(i)
	// These fields describe only one limit: of two limiters, that with less left.
	if before, err := strconv.Atoi(h.Get(fieldRemaining)); err == nil && d.Allowed && before <= left {
		return
	}
	h.Set(fieldLimit, strconv.Itoa(d.result.Set.Limits[i].Quota))
	h.Set(fieldRemaining, strconv.Itoa(left))
	if d.result.Set.Limits[i].InFlight { // nobody knows when a request ends
		remove(h, fieldReset)
		return
	}
	h.Set(fieldReset, strconv.FormatInt(engine.Seconds(d.result.Reset(i)), 10))
}

// remove removes a field that an outer limiter has written.
func remove(h adapter.HeaderMap, field string) {
	if d, ok := h.(interface{ Del(name string) }); ok {
		d.Del(field)
	}
}

const problemBase = "https://iana.org/assignments/http-problem-types#"

// For adapters: Problem returns the default problem document for a denied request.
func (d *Decision) Problem() adapter.Problem {
	p := adapter.Problem{
		Type:     problemBase + "quota-exceeded",
		Title:    "Quota Exceeded",
		Status:   http.StatusTooManyRequests,
		Violated: d.Violated,
		Wait:     d.RetryAfter,
	}
	if d.Banned {
		p.Type, p.Title = problemBase+"abnormal-usage-detected", "Abnormal Usage Detected"
	}
	if d.refused() {
		p.Violated = nil
	}
	if d.never() {
		p.Wait = -1
	}
	switch s := max(1, engine.Seconds(d.RetryAfter)); {
	case d.detail() != "":
		p.Detail = d.detail()
	case d.awaitsPermit():
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

// detail returns what a rule says about its denials, or an empty text.
func (d *Decision) detail() string {
	if d.result.Set == nil {
		return ""
	}
	if rule := d.result.Rule(); rule != nil {
		return rule.Detail
	}
	return ""
}

// For adapters: ProblemOf returns the default problem document for an error of [Limiter.Check]: 400 without a key, 403
// for a client on a deny list, 503 if the store does not answer, and 500 if a callback failed. It does not contain the
// text of err.
func ProblemOf(err error) adapter.Problem {
	var limited *LimitedError
	var store *StoreError
	p := adapter.Problem{Type: "about:blank", Status: http.StatusInternalServerError}
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
			Wait:       time.Second,
		}
	case errors.Is(err, ErrForbidden):
		p.Status = http.StatusForbidden
	case errors.Is(err, ErrNoKey):
		p.Status, p.Detail = http.StatusBadRequest, "The request does not identify whose quota it uses."
	}
	p.Title = http.StatusText(p.Status)
	return p
}
