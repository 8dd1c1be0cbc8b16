package dashboard

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/engine"
)

const shownOverrides = 100 // of all policies, those that end first

// overridesMessage is the answer to a page that asks for overrides.
type overridesMessage struct {
	Keys      []overrideKey     `json:"keys"` // of limiters that were added and look for overrides
	Overrides []overrideMessage `json:"overrides"`
	Others    int               `json:"others"`           // that are not shown
	Failed    []string          `json:"failed,omitempty"` // policies whose overrides could not be read
	Versions  []engine.Version  `json:"versions"`         // of files of rules that processes enforce
}

// overrideKey is a kind of key that overrides can be of: that of a policy or a rule, or of a limit of it.
type overrideKey struct {
	Policy string `json:"policy"` // of the limiter
	Name   string `json:"name"`
}

type overrideMessage struct {
	ID     string    `json:"id"` // a hash
	Of     string    `json:"of"` // the limiter's policy
	Policy string    `json:"policy"`
	Key    string    `json:"key"` // or what stands for it
	What   string    `json:"what"`
	Until  time.Time `json:"until"`
	Note   string    `json:"note,omitempty"` // for those who may act or see identities
}

// overrides answers with the overrides in force.
func (h *handler) overrides(r *http.Request, _ *question) (any, error) {
	m := overridesMessage{Keys: []overrideKey{}, Overrides: []overrideMessage{}, Versions: []engine.Version{}}
	type listed struct {
		core.KeyOverride

		of string // the limiter's policy
	}
	var all []listed
	for _, l := range h.board.limiterOfEach() {
		policy, keys := l.Inside().Policy(), l.Inside().OverrideKeys()
		for _, k := range keys {
			m.Keys = append(m.Keys, overrideKey{policy, k.Name})
		}
		if len(keys) > 0 {
			own, err := l.Overrides(r.Context()) // which reads them only if they have changed
			if err != nil {
				m.Failed = append(m.Failed, policy)
			}
			for _, o := range own {
				all = append(all, listed{o, policy})
			}
		}
		if l.Inside().Gate().Rules == nil {
			continue
		}
		versions, _ := l.Inside().Engine().Versions(r.Context()) // the page shows outages elsewhere
		for _, v := range versions {                             // limiters may have a store in common
			same := func(m engine.Version) bool { return m.File == v.File && m.Hash == v.Hash }
			if !slices.ContainsFunc(m.Versions, same) {
				m.Versions = append(m.Versions, v)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b listed) int { return a.Until.Compare(b.Until) })
	shown, notes := all[:min(len(all), shownOverrides)], h.identities || h.mayAct(r)
	m.Others = len(all) - len(shown)
	for _, o := range shown {
		one := overrideMessage{
			ID: overrideID(o.of, o.ID), Of: o.of, Policy: o.Policy, Key: h.overridden(&o.KeyOverride),
			What: whatOf(&o.KeyOverride), Until: o.Until,
		}
		if notes {
			one.Note = o.Note
		}
		m.Overrides = append(m.Overrides, one)
	}
	return m, nil
}

// overrideID returns what stands for the ID of an override, which may have an address in it.
func overrideID(policy, id string) string {
	return hash(policy + separator + "override" + separator + id)
}

// overridden returns the key of an override as pages have it. With WithSecret it has no name.
func (h *handler) overridden(o *core.KeyOverride) string {
	if o.Key == "" && !strings.Contains(o.ID, ".all:") {
		return hash(o.ID)
	}
	return h.shown(o.Policy, o.Key)
}

func whatOf(o *core.KeyOverride) string {
	limits := make([]string, len(o.Limits))
	for i, l := range o.Limits {
		limits[i] = l.String()
	}
	if len(limits) == 0 {
		return o.Kind()
	}
	return strings.Join(limits, ", ")
}

// override gives a key another quota. Its answer has every mistake, since it is about what the page has sent.
func (h *handler) override(r *http.Request, q *question) (any, error) {
	l := named(h.board.limiterOfEach(), q.Policy)
	if l == nil {
		return nil, errNoLimiter
	}
	var limits []*engine.Limit // that it would replace
	for _, k := range l.Inside().OverrideKeys() {
		if k.Name == q.Name {
			limits = k.Limits
		}
	}
	o, err := q.override(limits)
	if err == nil {
		err = l.Inside().OverrideNamed(r.Context(), q.Name, q.Key, o)
	}
	if errors.As(err, new(*core.ConfigError)) {
		err = &refusal{http.StatusUnprocessableEntity, err.Error()}
	}
	return nil, err
}

// removeOverride ends an override.
func (h *handler) removeOverride(r *http.Request, q *question) (any, error) {
	l := named(h.board.limiterOfEach(), q.Policy)
	if l == nil {
		return nil, errNoLimiter
	}
	all, err := l.Overrides(r.Context())
	i := slices.IndexFunc(all, func(o core.KeyOverride) bool { return overrideID(q.Policy, o.ID) == q.ID })
	switch {
	case i >= 0:
		err = l.RemoveOverrideByID(r.Context(), all[i].ID)
	case err == nil:
		err = &refusal{http.StatusNotFound, "this override has ended"}
	}
	return nil, err
}

// override returns what is asked for, or an error for each text that cannot be read. replaced are the limits of the
// key.
func (q *question) override(replaced []*engine.Limit) (o core.Override, err error) {
	var faults []error
	o.Note, o.Denied, o.Unlimited = q.Note, q.Kind == "denied", q.Kind == "unlimited"
	if q.Kind == "limits" {
		for text := range strings.SplitSeq(q.Limits, ",") {
			limit, err := parseLimit(strings.TrimSpace(text), replaced)
			if err != nil {
				faults = append(faults, err)
			}
			o.Limits = append(o.Limits, limit)
		}
	}
	if o.Until, err = parseEnd(strings.TrimSpace(q.For)); err != nil {
		faults = append(faults, &core.ConfigError{
			Option: "Override", Value: strconv.Quote(q.For), Problem: "this is neither a length of time nor a date",
			Remedy: `write one such as "30m", "1h", "3d", "2026-12-24" or "2026-12-24 18:00"`,
		})
	}
	return o, errors.Join(faults...)
}

// parseLimit is core.ParseLimit. A period without a zone and a beginning, such as a month, has those of the limit that
// it replaces: of the same unit and period.
func parseLimit(text string, replaced []*engine.Limit) (core.Limit, error) {
	limit, err := core.ParseLimit(text)
	if err != nil || strings.Contains(text, " in ") || strings.Contains(text, " from ") {
		return limit, err
	}
	_, period, _ := strings.Cut(limit.String(), "/")
	for _, old := range replaced {
		_, oldPeriod, _ := strings.Cut(old.Text, "/")
		if zone, ok := strings.CutPrefix(oldPeriod, period+" in "); ok && old.Unit == limit.Given().Unit {
			return core.ParseLimit(limit.String() + " in " + zone)
		}
	}
	return limit, nil
}

// parseEnd returns when a length of time from now on ends, or the instant that a text is.
func parseEnd(text string) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Now().Add(time.Duration(n) * 24 * time.Hour), err
	}
	length, err := time.ParseDuration(text)
	return time.Now().Add(length), err
}
