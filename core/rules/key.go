package rules

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/keys"
)

// key is a KEY of the file.
type key struct {
	core.Key

	text  string // the same for equal keys
	label string // in the names of logs
}

// key makes the key of a value. It returns nil if there is none, or after a mistake.
func (k *reader) key(p place) *key {
	switch {
	case p.isEmpty():
		return nil
	case p.Kind == yaml.ScalarNode && slices.Contains([]string{"ip", "global", "route"}, p.Value):
		return k.make(p.Value, p, place{})
	case p.Kind == yaml.ScalarNode: // of a descriptor
		return k.make("value", p, place{})
	}
	var kinds []place
	for _, kind := range []string{"forwarded", "header", "claim", "value", "join", "first"} {
		if f := p.get(kind); f.exists() {
			kinds = append(kinds, f)
		}
	}
	switch {
	case len(kinds) == 0:
		p.asFirst().fault("this key is empty", "write one of forwarded, header, claim, value, join and first")
		return nil
	case len(kinds) > 1:
		kinds[1].asName().fault(fmt.Sprintf("these are two keys: %s and %s", kinds[0].name.Value, kinds[1].name.Value),
			"keep one, or write first: or join: with a list of both")
		return nil
	}
	kind, verify := kinds[0], p.get("verify")
	if verify.exists() && kind.name.Value != "header" {
		verify.asName().fault("only the value of a header can be verified", "remove it")
	}
	return k.make(kind.name.Value, kind, verify)
}

// make makes a key of a kind: of a name, or of a list. verify is the verifier of a header.
func (k *reader) make(kind string, of, verify place) *key {
	var made core.Key
	name, label := of.Value, engine.Fit(kind+"."+of.Value)
	if of.isEmpty() {
		return nil
	}
	switch kind {
	case "join", "first":
		return k.several(kind, of)
	case "ip":
		made, label = core.ByIP(), kind
	case "global":
		made, label = core.Global(), kind
	case "route":
		made, label = byRoute, kind
	case "value":
		made = core.ByValue(name)
	case "claim":
		if k.claims == nil {
			of.fault("the program reads no claims",
				"pass rules.WithClaims a function, such as one that returns a key of package jwtkey")
			return nil
		}
		made = k.claims(name)
	case "header":
		f := k.verifier(of, verify)
		if f == nil {
			return nil
		}
		made = core.ByHeader(name, f)
		name, label = lower(name)+" "+verify.Value, engine.Fit(kind+"."+lower(name))
	case "forwarded":
		var networks []string
		for _, one := range of.items() {
			if networks = append(networks, one.Value); one.isBad(core.ByForwardedIP(one.Value)) {
				return nil
			}
		}
		made, name, label = core.ByForwardedIP(networks...), strings.Join(networks, " "), kind
	}
	if of.isBad(made) {
		return nil
	}
	return k.once(&key{Key: made, text: kind + " " + name, label: label})
}

// once returns the equal key that was made before, or this one.
func (k *reader) once(one *key) *key {
	if known := k.known[one.text]; known != nil {
		return known
	}
	k.known[one.text] = one
	return one
}

// verifier returns what verifies a header, or nil after a mistake.
func (k *reader) verifier(header, verify place) func(context.Context, string) (string, error) {
	f := k.verifiers[verify.Value]
	if !verify.exists() {
		header.asName().fault("the header is not verified",
			"add verify: with a registered verifier, or verify: unverified to take the value as it is")
	} else if f == nil {
		registered := strings.Join(slices.Sorted(maps.Keys(k.verifiers)), ", ")
		verify.fault(fmt.Sprintf("the verifier %.60q is not registered", verify.Value),
			"register it with rules.WithVerifier; registered are "+registered)
	}
	return f
}

// several makes the key of a list of keys, join or first.
func (k *reader) several(kind string, list place) *key {
	items := list.items()
	parts := make([]*key, 0, len(items))
	for _, item := range items {
		part := k.key(item)
		if slices.Contains(parts, part) && part != nil {
			item.fault("this key is listed twice", "remove one")
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 || slices.Contains(parts, nil) {
		return nil
	}
	return k.combined(kind, parts)
}

// combined is the key of several, join or first. Descriptors below others have a joined one.
func (k *reader) combined(kind string, parts []*key) *key {
	one := &key{text: kind}
	keys := make([]core.Key, 0, len(parts))
	for _, part := range parts {
		keys = append(keys, part.Key)
		one.text += " " + strconv.Quote(part.text)
	}
	if one.Key = core.First(keys...); kind == "join" {
		one.Key = core.Join(keys...)
	}
	one.label = kind + "-" + engine.Fit(one.text)
	return k.once(one)
}

// isBad reports what is wrong with a key that was made of a value.
func (p place) isBad(made core.Key) bool {
	if made.Spec() == nil {
		p.fault(keys.ZeroKey, keys.MakeKey)
		return true
	}
	err := made.Spec().Fault
	if err != nil {
		p.fault(reason(err))
	}
	return err != nil
}

// reason returns what is wrong with a value and what to do.
func reason(err error) (problem, remedy string) {
	var config *core.ConfigError
	if !errors.As(err, &config) {
		return err.Error(), "see the documentation of package core"
	}
	return strings.TrimPrefix(config.Value+": ", ": ") + config.Problem, config.Remedy
}

// textOfKey returns what a key finds in a request, and whether it finds something.
func textOfKey(c *choice, k *key) (text string, ok bool, err error) {
	id, err := c.Identity(k.Spec())
	switch {
	case errors.Is(err, core.ErrNoKey):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("sash: a rule asks for %s: %w", k.text, err)
	case id.Addr.IsValid() && id.Kind != "ip": // the address is that of a proxy which did not report the client
		return "unidentified@" + id.Addr.String(), true, nil
	case id.Addr.IsValid():
		return id.Addr.String(), true, nil
	}
	return id.Text, true, nil
}

// byRoute is the key of a request's method. The path is that of the rule, which names the logs.
var byRoute = core.KeyOf("route", func(r adapter.Request) (scope, text string, err error) {
	t, ok := r.(adapter.Targeter)
	if !ok {
		return "", "", errNoTarget
	}
	switch method := t.Target().Method; {
	case method == "HEAD":
		return "", "GET", nil
	case slices.Contains(methods, method):
		return "", method, nil
	}
	return "", "other", nil // clients can make up methods
})

// methods are those that get a quota of their own under the key route.
var methods = []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"}

var errNoTarget = &adapter.ConstantError{Err: &core.ConfigError{
	Option: "rules", Value: "request",
	Problem: "this adapter does not report method, host and path",
	Remedy:  "give its requests a method Target (adapter.Targeter)",
}}
