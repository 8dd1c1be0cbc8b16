package engine

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"

	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/store"
)

// Compile makes a set of limits that do not depend on requests: of those in force, or of those that are tried out,
// which have logs of their own, of a policy whose name ends with "~shadow". It returns one even with an error, so that
// further mistakes can be found.
func (e *Engine) Compile(given []Given, shadow bool) (*Set, error) {
	if shadow {
		return e.newSetOf(given, e.shadow, "WithShadow")
	}
	s, err := e.newSetOf(given, e.own, "limits")
	if e.ban != nil && len(s.Limits) > 0 && !slices.ContainsFunc(s.Limits, func(l Limit) bool { return l.bans() }) {
		err = errors.Join(err, configError("WithBan", s.Text(),
			"bans need a limit that has a window and the limiter's key", "add one, or leave the option out"))
	}
	return s, err
}

func (e *Engine) newSetOf(given []Given, own *Key, option string) (*Set, error) {
	limits, err := e.compile(given, own, option)
	s := newSet(limits, nil)
	if err == nil {
		err = e.admit(s)
	}
	return s, err
}

// admit returns an error if the store cannot decide about the limits of a set. It remembers their logs for Reset.
func (e *Engine) admit(s *Set) error {
	stored := make([]*store.Limit, len(s.Limits))
	for i := range s.Limits {
		stored[i] = s.Limits[i].Store()
	}
	if err := e.store.validate(stored...); err != nil {
		return err
	}
	if s.InFlight && !e.store.holds {
		return configError("InFlight", e.store.name(), "this store cannot hold requests in flight: "+
			"it has no methods Renew and Settle (store.Renewer, store.Settler)", otherStore)
	}
	e.notice(s.Limits)
	return nil
}

const otherStore = "use another store, or add what is missing; a wrapper embeds store.Full"

// mostChosen is how many sets that requests have chosen are remembered.
const mostChosen = 1024

// chosen is a set that a request has chosen.
type chosen struct {
	given []Given
	set   *Set
}

// Choose is Compile for limits that a request has chosen. Sets are remembered by content. It keeps neither given nor
// the memory of its texts.
func (e *Engine) Choose(given []Given, shadow bool) (*Set, error) {
	from, key, option := &e.chosen, e.own, "LimitBy"
	if shadow {
		from, key, option = &e.tried, e.shadow, "WithShadow"
	}
	hash := hashOf(given)
	same := func(a, b Given) bool { return a.equal(&b) }
	if c, ok := from.find(hash); ok && slices.EqualFunc(c.given, given, same) {
		return c.set, nil
	}
	own := make([]Given, len(given))
	for i := range given {
		own[i] = given[i].clone()
	}
	s, err := e.newSetOf(own, key, option)
	if err != nil {
		return nil, err
	}
	from.replace(hash, chosen{own, s})
	return s, nil
}

var seed = maphash.MakeSeed()

// hashOf is equal for limits that are written equally.
func hashOf(given []Given) (h uint64) {
	for i := range given {
		g := &given[i]
		for _, n := range [...]uint64{
			uint64(g.Quota), uint64(g.Window), uint64(g.Burst), uint64(g.Algorithm), maphash.String(seed, g.Name),
			maphash.String(seed, g.Unit), maphash.String(seed, g.Label),
		} {
			h = (h^n)*0x9e3779b97f4a7c15 + h>>32
		}
	}
	return h
}

// Rule is whose limits are compiled: a rule of a file, a part of one that applies by itself, or a whole policy.
type Rule struct {
	Policy string     // of decisions, for people
	Name   string     // begins the names of its logs, as Config.Policy; rules of one name have different labels
	Label  string     // in the names of its logs: of [a-z0-9._-], or empty
	Prefix string     // begins the names of limits that have none
	Key    *keys.Spec // of limits that have none
	Limits []Given
	Shadow bool   // it is tried out, with logs of its own: those of Name and "~shadow"
	Detail string // of the problem document of a denial, or empty for the usual one

	set *Set
}

// Prepare checks a rule and makes it ready for [Engine.Combine].
func (e *Engine) Prepare(r *Rule) (err error) {
	if r.set, err = e.newSetOf(r.Limits, e.ownKey(r), "limits"); r.Key != nil && r.Key.Fault != nil {
		err = errors.Join(r.Key.Fault, err)
	}
	return err
}

// Set returns the limits of a rule that was prepared.
func (r *Rule) Set() *Set { return r.set }

// combination is rules that apply to one request, and then nil. Each has a limit, so there are no more of them.
type combination [store.MostTakes]*Rule

var noLimits = newSet(nil, nil)

// Combine returns the set of the rules that apply to a request: of those in shadow, or of the others. All were
// prepared. Sets are remembered by their rules.
func (e *Engine) Combine(rules []*Rule, shadow bool) (*Set, error) {
	var of combination
	n, limits := 0, 0
	for _, r := range rules {
		if r.Shadow != shadow {
			continue
		}
		if limits += len(r.set.Limits); limits > store.MostTakes {
			return nil, tooMany(rules, shadow)
		}
		of[n] = r
		n++
	}
	switch n {
	case 0:
		return noLimits, nil
	case 1:
		return of[0].set, nil
	}
	if s, ok := e.combined.find(of); ok {
		return s, nil
	}
	all := make([]Limit, 0, limits)
	for _, r := range of[:n] {
		all = append(all, r.set.Limits...)
	}
	s := newSet(all, nil)
	if err := e.admit(s); err != nil {
		return nil, err
	}
	return e.combined.get(of, func() *Set { return s }), nil
}

func tooMany(rules []*Rule, shadow bool) error {
	var names []string
	for _, r := range rules {
		if r.Shadow == shadow {
			names = append(names, r.Policy)
		}
	}
	return configError("rules", strconv.Itoa(len(names))+" rules", fmt.Sprintf(
		"these rules apply to one request, and have more than %d limits together: %s", store.MostTakes,
		strings.Join(names, ", ")), "remove limits, or narrow the matches of these rules")
}
