package dashboard

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
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
func (h *handler) overrides(r *http.Request, _ *struct{}) (any, error) {
	m := overridesMessage{
		Keys: []overrideKey{}, Overrides: []overrideMessage{}, Versions: h.board.versions(r.Context()),
	}
	notes := h.identities || h.mayAct(r)
	for _, l := range h.board.overridable() {
		for _, k := range l.Inside().OverrideKeys() {
			m.Keys = append(m.Keys, overrideKey{l.policy, k.Name})
		}
		all, err := h.board.overridesOf(r.Context(), l)
		if err != nil {
			m.Failed = append(m.Failed, l.policy)
		}
		for _, o := range all {
			one := overrideMessage{
				ID: overrideID(l.policy, o.ID), Of: l.policy, Policy: o.Policy, Key: h.overridden(&o), What: whatOf(&o),
				Until: o.Until,
			}
			if notes {
				one.Note = o.Note
			}
			m.Overrides = append(m.Overrides, one)
		}
	}
	slices.SortStableFunc(m.Overrides, func(a, b overrideMessage) int { return a.Until.Compare(b.Until) })
	shown := m.Overrides[:min(len(m.Overrides), shownOverrides)]
	m.Others, m.Overrides = len(m.Overrides)-len(shown), shown
	return m, nil
}

// versions returns which versions of files of rules are enforced by the processes that share a store with a limiter
// that was added.
func (b *Board) versions(ctx context.Context) []engine.Version {
	b.mu.Lock()
	limiters := slices.Clone(b.limiters)
	b.mu.Unlock()
	all := []engine.Version{}
	for _, l := range limiters {
		if l.Inside().Gate().Rules == nil {
			continue
		}
		read, _ := b.readVersions.of(l.policy, func() ([]engine.Version, error) { // the page shows outages elsewhere
			return l.Inside().Engine().Versions(context.WithoutCancel(ctx))
		})
		for _, v := range read {
			if !slices.ContainsFunc(all, func(m engine.Version) bool { return m.File == v.File && m.Hash == v.Hash }) {
				all = append(all, v)
			}
		}
	}
	return all
}

// overridesOf returns the overrides of a limiter.
func (b *Board) overridesOf(ctx context.Context, l added) ([]core.KeyOverride, error) {
	all, err := b.readOverrides.of(l.policy, func() ([]core.KeyOverride, error) {
		return l.Overrides(context.WithoutCancel(ctx)) // other pages wait for it
	})
	now := time.Now()
	return slices.DeleteFunc(slices.Clone(all), func(o core.KeyOverride) bool { return !now.Before(o.Until) }), err
}

// reads is what stores have about policies. All pages read it once in readAgainAfter, since to read 10,000 overrides
// takes a fifth of a second.
type reads[T any] struct {
	mu       sync.Mutex
	policies map[string]wasRead[T]
}

type wasRead[T any] struct {
	at  time.Time
	all []T
	err error
}

const readAgainAfter = 5 * time.Second

// of returns what a store has about a policy.
func (r *reads[T]) of(policy string, read func() ([]T, error)) ([]T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.policies[policy]
	if !ok || time.Since(a.at) >= readAgainAfter {
		a.all, a.err = read()
		if a.at = time.Now(); r.policies == nil {
			r.policies = make(map[string]wasRead[T])
		}
		r.policies[policy] = a
	}
	return a.all, a.err
}

// changed forgets what was read of a policy, after an action.
func (r *reads[T]) changed(policy string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.policies, policy)
}

// overridable returns the limiters that look for overrides, the first of each policy.
func (b *Board) overridable() (all []added) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.limiters {
		same := func(earlier added) bool { return earlier.policy == a.policy }
		if !slices.ContainsFunc(all, same) && len(a.Inside().OverrideKeys()) > 0 {
			all = append(all, a)
		}
	}
	return all
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

// overrideQuestion is an override that a page asks for, or of which it asks to remove it.
type overrideQuestion struct {
	Policy string `json:"policy"` // of the limiter
	ID     string `json:"id"`     // to remove it

	Name   string `json:"name"` // one of overrideKey
	Key    string `json:"key"`
	Kind   string `json:"kind"`   // limits, denied or unlimited
	Limits string `json:"limits"` // such as "600/minute, 9000/day"
	For    string `json:"for"`    // such as "3d", or an instant in RFC 3339
	Note   string `json:"note"`
}

// override gives a key another quota. Its answer has every mistake, since it is about what the page has sent.
func (h *handler) override(r *http.Request, q *overrideQuestion) (any, error) {
	l := h.board.limiterOf(q.Policy)
	if l == nil {
		return nil, errNoLimiter
	}
	var limits []string // that it would replace
	for _, k := range l.Inside().OverrideKeys() {
		if k.Name == q.Name {
			limits = k.Texts
		}
	}
	o, err := q.override(limits)
	if err == nil {
		err = l.Inside().OverrideNamed(r.Context(), q.Name, q.Key, o)
		h.board.readOverrides.changed(q.Policy)
	}
	if errors.As(err, new(*core.ConfigError)) {
		err = &refusal{http.StatusUnprocessableEntity, err.Error()}
	}
	return nil, err
}

// removeOverride ends an override.
func (h *handler) removeOverride(r *http.Request, q *overrideQuestion) (any, error) {
	l := h.board.limiterOf(q.Policy)
	if l == nil {
		return nil, errNoLimiter
	}
	all, err := l.Overrides(r.Context())
	i := slices.IndexFunc(all, func(o core.KeyOverride) bool { return overrideID(q.Policy, o.ID) == q.ID })
	switch {
	case i >= 0:
		err = l.RemoveOverrideByID(r.Context(), all[i].ID)
		h.board.readOverrides.changed(q.Policy)
	case err == nil:
		err = &refusal{http.StatusNotFound, "this override has ended"}
	}
	return nil, err
}

// override returns what is asked for, or an error for each text that cannot be read. replaced are the limits of the
// key.
func (q *overrideQuestion) override(replaced []string) (o core.Override, err error) {
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
func parseLimit(text string, replaced []string) (core.Limit, error) {
	limit, err := core.ParseLimit(text)
	if err != nil || strings.Contains(text, " in ") || strings.Contains(text, " from ") {
		return limit, err
	}
	quota, period, _ := strings.Cut(limit.String(), "/")
	for _, old := range replaced {
		oldQuota, oldPeriod, _ := strings.Cut(old, "/")
		if zone, ok := strings.CutPrefix(oldPeriod, period+" in "); ok && unitOf(quota) == unitOf(oldQuota) {
			return core.ParseLimit(limit.String() + " in " + zone)
		}
	}
	return limit, nil
}

// unitOf returns what a quota such as "100 tokens" counts.
func unitOf(quota string) string {
	_, unit, _ := strings.Cut(quota, " ")
	return unit
}

// parseEnd returns when a length of time from now on ends, or the instant that a text is.
func parseEnd(text string) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	length, err := parseLength(text)
	return time.Now().Add(length), err
}

// parseLength is time.ParseDuration, and knows days.
func parseLength(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}
