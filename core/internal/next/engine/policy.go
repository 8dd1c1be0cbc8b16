package engine

import "github.com/sashlimit/sash/core/internal/next/keys"

// Compile makes a set of limits that do not depend on requests. It returns one even with an error, so that further
// mistakes can be found; option names the limits in errors.
func (e *Engine) Compile(given []Given, option string) (*Set, error) { return new(Set), nil }

// Choose is Compile for limits that a request has chosen. Sets are remembered by content. It keeps neither given nor
// the memory of its texts.
func (e *Engine) Choose(given []Given) (*Set, error) { return new(Set), nil }

// Shadow makes a set of limits that are tried out, with logs of their own: the policy's name is that of the engine and
// "~shadow". Limits of requests in flight are refused.
func (e *Engine) Shadow(given []Given, option string) (*Set, error) { return new(Set), nil }

// ChooseShadow is Shadow for limits that a request has chosen.
func (e *Engine) ChooseShadow(given []Given) (*Set, error) { return new(Set), nil }

// Rule is a rule of a file, or a part of one that applies by itself.
type Rule struct {
	Policy string     // of decisions, for people
	Name   string     // begins the names of its logs, as Config.Policy; rules of one name have different labels
	Label  string     // ends the names of its logs: of [a-z0-9._-], or empty
	Prefix string     // begins the names of limits that have none
	Key    *keys.Spec // of limits that have none
	Limits []Given
	Shadow bool   // its logs are those of Name and "~shadow"
	Detail string // of the problem document of a denial, or empty for the usual one

	limits []Limit
}

// Prepare checks a rule and makes it ready for [Engine.Combine].
func (e *Engine) Prepare(r *Rule) error { return nil }

// Combine returns the set of the rules that apply to a request, and that of those in shadow. A set is nil if there are
// none. Sets are remembered by their rules. There are at most store.MostTakes limits.
func (e *Engine) Combine(rules []*Rule) (set, shadow *Set, err error) { return nil, nil, nil }
