package core

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/gate"
	"github.com/sashlimit/sash/core/internal/keys"
)

// Policy is how much is allowed: a [Limit], several [Limits] decided together, or [LimitBy] for limits that depend on
// the request. No other package can implement it.
type Policy interface {
	// Written is for packages of this module.
	Written() (gate.Written, error)
}

// Written implements [Policy].
func (l Limit) Written() (gate.Written, error) { return Limits{l}.Written() }

// Written implements [Policy].
func (ls Limits) Written() (gate.Written, error) {
	p := gate.Written{Limits: ls.given([]engine.Given{}), Name: defaultPolicyName(ls)}
	for i, l := range ls {
		known := slices.ContainsFunc(ls[:i], func(earlier Limit) bool { return earlier.by == l.by })
		if l.by != nil && !known {
			p.Callbacks = append(p.Callbacks, l.by.Callbacks...)
		}
	}
	return p, nil
}

// given appends the limits as the engine gets them.
func (ls Limits) given(to []engine.Given) []engine.Given {
	for i := range ls {
		l := &ls[i]
		to = append(to, engine.Given{Limit: l.text(), Key: l.by, Label: l.label})
	}
	return to
}

// LimitBy chooses the limits for each request, for example by the customer's plan or tier. Limits of equal windows
// apply to the same logs, so a customer who changes to a larger plan keeps what was used and gains the difference at
// once. A limit with another window begins with an empty log: a client who can choose between two plans of different
// windows has both quotas.
//
//	core.LimitBy(func(r *http.Request) core.Limits { return tiers[tierOf(r)] })
//
// If f returns invalid limits or none, the request is refused (500), never admitted. The policy's name is "dynamic"
// unless [WithName] sets one; two such policies on one store need two names. The 1,024 latest sets of limits are
// remembered; others are checked anew for each request.
func LimitBy[C any](f func(C) Limits) Policy {
	if f == nil {
		return limitBy{}
	}
	get, callback := native[C](), callbackOf[C]("LimitBy")
	return limitBy{
		choose: func(r adapter.Request, to []engine.Given) ([]engine.Given, error) {
			if _, call := r.(gate.NoRequest); call && callback.Type != contextType {
				return nil, fmt.Errorf("%w: pass LimitBy a func(context.Context) core.Limits, and not one of a %v",
					gate.ErrNeedsRequest, callback.Type)
			}
			return f(get(r)).given(to), nil
		},
		callback: callback,
	}
}

type limitBy struct {
	choose   func(adapter.Request, []engine.Given) ([]engine.Given, error)
	callback keys.Callback
}

// Written implements [Policy].
func (l limitBy) Written() (w gate.Written, err error) {
	if l.choose == nil {
		return w, configError("LimitBy", "nil", noFunction,
			"pass a function that returns the limits for a request")
	}
	return gate.Written{Choose: l.choose, Callbacks: []keys.Callback{l.callback}, Name: "dynamic"}, nil
}

const maxPolicyName = 48

func validPolicyName(s string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyz0123456789._-"
	return s != "" && len(s) <= maxPolicyName && strings.Trim(s, allowed) == ""
}

// defaultPolicyName is made of quotas and windows as well as names, so that limits of different quotas never share a
// log because they have the same Name. Periods of the calendar that begin at different instants do.
func defaultPolicyName(limits Limits) string {
	names := make([]string, len(limits))
	for i, l := range limits {
		names[i] = l.text().DefaultName()
		if l.Name != "" && l.Name != names[i] {
			names[i] = l.Name + "." + names[i]
		}
	}
	name := strings.Join(names, "_")
	if !validPolicyName(name) {
		sum := sha256.Sum256([]byte(name))
		name = "limits-" + hex.EncodeToString(sum[:16])
	}
	return name
}
