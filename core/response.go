package core

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/limittext"
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
	// HeadersByUnit is, for each unit that the limits count, three fields such as X-RateLimit-Limit-Tokens,
	// X-RateLimit-Remaining-Tokens and X-RateLimit-Reset-Tokens, as gateways to language models send them. They are of
	// the limit of the unit with the least left. Reset is the time until its oldest unit leaves, such as "6m0s"; the
	// unit of [InFlight], concurrent-requests, has none.
	HeadersByUnit
)

// WithHeaders chooses the header fields of responses. The default is [HeadersDraft].
func WithHeaders(h Headers) Option {
	g := given{name: "WithHeaders", answers: true}
	return g.optionIf(HeadersDraft <= h && h <= HeadersByUnit, strconv.Itoa(int(h)), "there is no such value",
		"choose HeadersDraft, HeadersLegacy, HeadersBoth, HeadersNone or HeadersByUnit",
		func(c *config) { c.headers = h })
}

// WithHeadersFunc calls f for each response to a request that limits have decided about, after the fields of
// [WithHeaders] were set. It may set further ones, or change these. For no others but Retry-After, add
// WithHeaders(HeadersNone).
//
//	core.WithHeadersFunc(func(d core.Decision, h adapter.HeaderMap) {
//		h.Set("X-Quota-Left", strconv.Itoa(d.Remaining))
//	})
//
// A panic of f is logged, and the request is answered as if f had returned.
func WithHeadersFunc(f func(Decision, adapter.HeaderMap)) Option {
	g := given{name: "WithHeadersFunc", answers: true}
	return g.optionIf(f != nil, "nil", noFunction, giveOne, func(c *config) { c.fields = f })
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
	style := d.limiter.headers
	draft := style == HeadersDraft || style == HeadersBoth
	if !d.Allowed {
		d.setRetry(h)
		if d.refused() || !draft { // Retry-After may be earlier than the "t" of an outer limiter
			remove(h, fieldRateLimit)
		}
	}
	if !d.refused() { // a limit has decided
		if draft && d.result.Set.Header != "" { // an override may let all pass
			d.setDraft(h)
		}
		if style == HeadersLegacy || style == HeadersBoth {
			d.setLegacy(h)
		}
		if style == HeadersByUnit {
			d.setByUnit(h)
		}
	}
	if d.limiter.fields != nil {
		d.callFields(h)
	}
}

// callFields calls the function of WithHeadersFunc.
func (d *Decision) callFields(h adapter.HeaderMap) {
	if _, ok := h.(http.Header); !ok {
		h = anyFields{h}
	}
	own := *d // so that only decisions with a function are moved to the heap
	err := adapter.Guard(func() error {
		own.limiter.fields(own, h)
		return nil
	})
	own.limiter.panicked(context.Background(), "the function given to WithHeadersFunc has panicked", err)
}

// anyFields is a header for the user's function. That of an adapter takes names in canonical form and values without
// line breaks, as core's are.
type anyFields struct{ adapter.HeaderMap }

func (f anyFields) Get(name string) string { return f.HeaderMap.Get(http.CanonicalHeaderKey(name)) }
func (f anyFields) Del(name string)        { remove(f.HeaderMap, http.CanonicalHeaderKey(name)) }
func (f anyFields) Set(name, value string) {
	f.HeaderMap.Set(http.CanonicalHeaderKey(name), noLineBreaks.Replace(value))
}

var noLineBreaks = strings.NewReplacer("\r", " ", "\n", " ") // as net/http has it

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
	s := d.result.State(i)
	// These fields describe only one limit: of two limiters, that with less left.
	if before, err := strconv.Atoi(h.Get(fieldRemaining)); err == nil && d.Allowed && before <= s.Left {
		return
	}
	h.Set(fieldLimit, strconv.Itoa(d.result.Set.Limits[i].Quota))
	h.Set(fieldRemaining, strconv.Itoa(s.Left))
	if d.result.Set.Limits[i].InFlight { // nobody knows when a request ends
		remove(h, fieldReset)
		return
	}
	h.Set(fieldReset, strconv.FormatInt(engine.Seconds(s.Reset), 10))
}

// setByUnit describes the limits by their units. Of two limits of a unit, also of two limiters, the one with less left
// is described, or if the request is denied, one that has denied.
func (d *Decision) setByUnit(h adapter.HeaderMap) {
	r := &d.result
	for i := range r.Set.Limits {
		l, s := &r.Set.Limits[i], r.State(i)
		if !s.Told {
			continue
		}
		unit := limittext.UnitName(l.Unit)
		if l.InFlight {
			unit = engine.ConcurrentRequests
		}
		before, err := strconv.Atoi(h.Get(fieldRemaining + "-" + unit))
		if err == nil && before <= s.Left && !s.Denies {
			continue
		}
		h.Set(fieldLimit+"-"+unit, strconv.Itoa(l.Quota))
		h.Set(fieldRemaining+"-"+unit, strconv.Itoa(s.Left))
		if !l.InFlight { // nobody knows when a request ends
			reset := (s.Reset + time.Millisecond - 1).Truncate(time.Millisecond)
			h.Set(fieldReset+"-"+unit, reset.String())
		}
	}
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
