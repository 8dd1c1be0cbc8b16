package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/store"
)

// Override is other limits for one identity of a key, until an instant. Exactly one of Limits, Denied and Unlimited is
// set. Its JSON is the value that the store has.
type Override struct {
	Limits    []Given   `json:"-"`                   // in place of the key's of the same units; without key and label
	Denied    bool      `json:"denied,omitempty"`    // refuses all requests
	Unlimited bool      `json:"unlimited,omitempty"` // lets the limits of the key deny nothing, but those in flight
	Until     time.Time `json:"-"`
	Note      string    `json:"note,omitempty"`
	Pause     bool      `json:"-"` // it is beside another one of the identity, and does not replace one that ends later

	// Of one that is kept or was read:

	ID     string        `json:"-"`                // names it in the store
	Policy string        `json:"policy"`           // or the rule
	Key    string        `json:"key,omitempty"`    // as it was given; empty with a secret
	Stored []storedLimit `json:"limits,omitempty"` // Limits as the store has them
	Public atomic.Value  `json:"-"`                // what package core makes of it for users

	raw    string      // its JSON
	text   string      // of Stored
	broken error       // why it cannot be read, so that it has no effect, or nil
	misfit atomic.Bool // it did not fit the limits of a request, and that was logged
}

const (
	maxNote     = 200
	maxOverride = 366 * 24 * time.Hour
)

type storedLimit struct {
	Limit     string `json:"limit"`
	Name      string `json:"name,omitempty"`
	Algorithm string `json:"algorithm,omitempty"` // a word of store.Algorithm, unless the limit's text tells it
}

// Validate returns an error for each mistake of an override in itself.
func (o *Override) Validate() error {
	_, err := o.value()
	return err
}

// value returns what the store keeps of an override, or an error for each mistake in itself.
func (o *Override) value() (text string, err error) {
	var wrong []error
	add := func(is bool, value, problem, remedy string) {
		if is {
			wrong = append(wrong, configError("Override", value, problem, remedy))
		}
	}
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
	o.Stored = nil
	for i := range o.Limits {
		g := &o.Limits[i]
		add(g.Key != nil || g.InFlight, g.String(),
			"limits of an override have no key of their own, and count no requests in flight",
			"set By of the override, and leave out InFlight")
		for _, f := range g.Faults() {
			add(true, g.String(), f.Problem, f.Remedy)
		}
		o.Stored = append(o.Stored, storedLimit{g.String(), g.Name, g.Algorithm.String()})
	}
	add(o.Limits != nil && len(o.Limits) == 0, "none", "there are no limits",
		"pass at least one, such as core.PerMinute(100)")
	if wrong != nil {
		return "", errors.Join(wrong...)
	}
	b, err := json.Marshal(o)
	return string(b), err
}

// parseOverride reads what the store has of an override. It returns one even if that cannot be read.
func parseOverride(from store.Override) *Override {
	o := &Override{ID: from.Name, Until: from.Until, raw: from.Value}
	o.broken = o.parse()
	return o
}

func (o *Override) parse() error {
	if err := json.Unmarshal([]byte(o.raw), o); err != nil {
		return err
	}
	o.text = fmt.Sprintf("%q", o.Stored)
	for _, s := range o.Stored {
		limit, err := limittext.Parse(s.Limit)
		if err != nil {
			return err
		}
		limit.Name = s.Name
		if !limit.Calendar.IsSet() && limit.Algorithm == store.SlidingLog {
			if limit.Algorithm, err = algorithmOf(s.Algorithm); err != nil {
				return err
			}
		}
		o.Limits = append(o.Limits, Given{Limit: limit})
	}
	return nil
}

// inForce reports whether the override has an effect now.
func (o *Override) inForce() bool { return o != nil && o.broken == nil && time.Now().Before(o.Until) }

// algorithmOf returns the algorithm that a word names, or else the sliding log.
func algorithmOf(word string) (store.Algorithm, error) {
	for _, a := range store.Algorithms() {
		if word == "" || a.String() == word {
			return a, nil
		}
	}
	return 0, fmt.Errorf("this release has no algorithm %q", word)
}
