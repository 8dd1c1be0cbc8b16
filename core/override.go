package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/store"
)

// Override is another quota for one key until an instant: see [Limiter.Override]. Exactly one of Limits, Denied and
// Unlimited is set.
type Override struct {
	// Limits replace the key's limits of the same units. They draw from the same logs, so what was used stays used: a
	// larger quota admits the difference at once, and a smaller one needs no reset. Limits of other units, of other
	// keys and of requests in flight stay.
	Limits Limits

	// Denied refuses all requests of the key (429), with RetryAfter until the end.
	Denied bool

	// Unlimited lets the key's limits deny nothing. Requests are recorded, at least [store.MaxRecorded] units, except
	// for limits of another algorithm than [SlidingLog]. Limits of other keys and of requests in flight stay.
	Unlimited bool

	Until time.Time // the end: in the future, and within a year
	Note  string    // why, for people: at most 200 bytes
	By    Key       `json:"-"` // the key of limits with [Limit.By] that is meant; the zero Key is the limiter's own
}

// Kind returns "denied", "unlimited" or "limits".
func (o *Override) Kind() string {
	switch {
	case o.Denied:
		return "denied"
	case o.Unlimited:
		return "unlimited"
	}
	return "limits"
}

// KeyOverride is an override in force, as [Limiter.Overrides] lists it.
type KeyOverride struct {
	Policy string // its name, or that of the rule
	Key    string // as it was given; empty with [WithSecret]. It may be personal data
	ID     string // names the key, for [Limiter.RemoveOverrideByID]
	Override
}

const (
	maxNote     = 200
	maxOverride = 366 * 24 * time.Hour
)

// text returns what the store keeps of an override, or an error for each mistake in itself.
func (o *Override) text(policy, key string) (text string, err error) {
	var wrong faults
	add := func(is bool, value, problem, remedy string) { wrong.add(is, "Override", value, problem, remedy) }
	given := 0
	for _, is := range [...]bool{o.Limits != nil, o.Denied, o.Unlimited} {
		if is {
			given++
		}
	}
	add(given != 1, strconv.Itoa(given)+" of Limits, Denied and Unlimited", "exactly one must be set",
		"set one of them")
	left, isSet, end := time.Until(o.Until), !o.Until.IsZero(), o.Until.Format(time.RFC3339)
	add(!isSet, "no end", "an override needs an end", "set Until, such as time.Now().Add(24*time.Hour)")
	add(isSet && left <= 0, end, "the end is in the past", "set Until to a later instant")
	add(left > maxOverride, end, "the end is more than a year ahead", "set an earlier one, and renew it")
	add(len(o.Note) > maxNote || !utf8.ValidString(o.Note), strconv.Itoa(len(o.Note))+" bytes of Note",
		"the note is too long, or not UTF-8", fmt.Sprintf("use at most %d bytes of UTF-8", maxNote))
	stored := storedOverride{Policy: policy, Key: key, Denied: o.Denied, Unlimited: o.Unlimited, Note: o.Note}
	for _, limit := range o.Limits {
		add(limit.by != nil || limit.form.InFlight, limit.String(),
			"limits of an override have no key of their own, and count no requests in flight",
			"set By of the override, and leave out InFlight")
		stored.Limits = append(stored.Limits, storedLimit{limit.String(), limit.Name, limit.form.Algorithm})
	}
	_, err = o.compile()
	if err = errors.Join(errors.Join(wrong...), err); err != nil {
		return "", err
	}
	b, err := json.Marshal(stored)
	return string(b), err
}

func (o *Override) compile() (*plan.Override, error) {
	if o.Limits == nil {
		return plan.NewOverride(nil), nil
	}
	pl, err := newPlan(o.Limits, "Override")
	if err != nil {
		return nil, err
	}
	return plan.NewOverride(pl.Limits), nil
}

// storedOverride is the value of an override in the store.
type storedOverride struct {
	Policy    string        `json:"policy"`
	Key       string        `json:"key,omitempty"`
	Limits    []storedLimit `json:"limits,omitempty"`
	Denied    bool          `json:"denied,omitempty"`
	Unlimited bool          `json:"unlimited,omitempty"`
	Note      string        `json:"note,omitempty"`
}

type storedLimit struct {
	Limit     string          `json:"limit"`
	Name      string          `json:"name,omitempty"`
	Algorithm store.Algorithm `json:"algorithm,omitempty"`
}

// activeOverride is an override that was read.
type activeOverride struct {
	KeyOverride

	plan *plan.Override
}

func parseOverride(from store.Override) (o *activeOverride, err error) {
	var stored storedOverride
	if err = json.Unmarshal([]byte(from.Value), &stored); err != nil {
		return nil, err
	}
	o = &activeOverride{KeyOverride: KeyOverride{Policy: stored.Policy, Key: stored.Key, Override: Override{
		Denied: stored.Denied, Unlimited: stored.Unlimited, Until: from.Until, Note: stored.Note,
	}}}
	for _, s := range stored.Limits {
		limit, err := ParseLimit(s.Limit)
		if err != nil {
			return nil, err
		}
		if limit.Name = s.Name; limit.form.Algorithm == store.SlidingLog {
			limit.form.Algorithm = s.Algorithm
		}
		o.Limits = append(o.Limits, limit)
	}
	o.plan, err = o.compile()
	return o, err
}
