package rules

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/gate"
	"github.com/sashlimit/sash/core/internal/keys"
)

// key is a KEY of the file.
type key struct {
	core.Key

	text  string // the same for equal keys
	label string // in the names of logs
	tuple bool   // its texts are not what somebody would write
}

// key makes the key of a value. It returns nil if there is none, or after a mistake.
func (k *reader) key(p place) *key {
	switch {
	case !p.exists() || p.isWrong():
		return nil
	case p.Kind == yaml.ScalarNode:
		return k.word(p)
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
	at := kinds[0]
	if verify := p.get("verify"); verify.exists() && at.name.Value != "header" {
		verify.asName().fault("only the value of a header can be verified", "remove it")
	}
	switch at.name.Value {
	case "forwarded":
		return k.forwarded(at)
	case "header":
		return k.header(at, p.get("verify"))
	case "claim":
		return k.claim(at)
	case "value":
		return k.value(at)
	}
	return k.several(at)
}

// word makes the key of a word: ip, global, route, or in a descriptor the name of a value.
func (k *reader) word(p place) *key {
	switch p.Value {
	case "":
		p.fault("the key is empty", "write a key, such as ip")
		return nil
	case "ip":
		return k.make(&key{Key: core.ByIP(), text: p.Value, label: p.Value})
	case "global":
		return k.make(&key{Key: core.Global(), text: p.Value, label: p.Value})
	case "route":
		return k.make(&key{Key: byRoute(k.route), text: "route " + k.route, label: p.Value})
	}
	return k.value(p)
}

// make returns the equal key that was made before, or this one.
func (k *reader) make(one *key) *key {
	if known := k.known[one.text]; known != nil {
		return known
	}
	k.known[one.text] = one
	return one
}

// value makes the key of a value of earlier middleware that has this name.
func (k *reader) value(name place) *key {
	if name.Value == "" {
		name.fault("the name is empty", "write the name under which earlier middleware stores the value")
		return nil
	}
	return k.make(&key{
		Key: core.ByValue(name.Value), text: "value " + name.Value, label: label("value", name.Value),
	})
}

func (k *reader) claim(name place) *key {
	switch {
	case name.Value == "":
		name.fault("the name is empty", "write the name of a claim, such as sub")
		return nil
	case k.claims == nil:
		name.fault("the program reads no claims",
			"pass rules.WithClaims a function, such as one that returns a key of package jwtkey")
		return nil
	}
	made := k.claims(name.Value)
	if name.isBad(made) {
		return nil
	}
	return k.make(&key{Key: made, text: "claim " + name.Value, label: label("claim", name.Value)})
}

func (k *reader) forwarded(p place) *key {
	var networks []string
	for _, one := range p.items() {
		if networks = append(networks, one.Value); one.isBad(core.ByForwardedIP(one.Value)) {
			return nil
		}
	}
	if networks == nil {
		return nil
	}
	return k.make(&key{
		Key: core.ByForwardedIP(networks...), text: "forwarded " + strings.Join(networks, " "), label: "forwarded",
	})
}

func (k *reader) header(p, verifier place) *key {
	if !verifier.exists() {
		p.asName().fault("the header is not verified",
			"add verify: with a registered verifier, or verify: unverified to take the value as it is")
		return nil
	}
	verify := k.verifiers[verifier.Value]
	if verifier.Value == "unverified" {
		verify = core.Unverified
	}
	if verify == nil {
		registered := strings.Join(slices.Sorted(maps.Keys(k.verifiers)), ", ")
		verifier.fault(fmt.Sprintf("the verifier %q is not registered", cut(verifier.Value)),
			"register it with rules.WithVerifier; registered are "+cmp.Or(registered, "none"))
		return nil
	}
	made := core.ByHeader(p.text(), verify)
	if p.isBad(made) {
		return nil
	}
	name := strings.ToLower(p.text())
	return k.make(&key{Key: made, text: "header " + name + " " + verifier.Value, label: label("header", name)})
}

// several makes the key of a list of keys, join or first.
func (k *reader) several(p place) *key {
	var parts []*key
	for _, item := range p.items() {
		part := k.key(item)
		if part == nil {
			return nil
		}
		if slices.Contains(parts, part) {
			item.fault("this key is listed twice", "remove one")
			return nil
		}
		parts = append(parts, part)
	}
	if parts == nil {
		return nil
	}
	return k.combined(p.name.Value, parts)
}

// combined is the key of several, join or first. Descriptors below others have a joined one.
func (k *reader) combined(kind string, parts []*key) *key {
	one := &key{tuple: kind == "join"}
	keys, texts := make([]core.Key, len(parts)), make([]string, len(parts))
	for i, part := range parts {
		keys[i], texts[i] = part.Key, part.text
		one.tuple = one.tuple || part.tuple
	}
	if one.Key = core.First(keys...); kind == "join" {
		one.Key = core.Join(keys...)
	}
	one.text = kind + " (" + strings.Join(texts, ") (") + ")"
	one.label = kind + "-" + hash(one.text)
	return k.make(one)
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
	if config.Value == "" {
		return config.Problem, config.Remedy
	}
	return config.Value + ": " + config.Problem, config.Remedy
}

// label is a kind and a name for the names of logs. Names that could be taken for others, and long ones, are hashed.
func label(kind, name string) string {
	const longest = 24
	clean := strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
	if clean && name != "" && len(name) <= longest {
		return kind + "." + name
	}
	return kind + "-" + hash(name)
}

func hash(s string) string { return hashOf([]byte(s))[:8] }

func hashOf(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

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

// byRoute is the key of a request's method and the path of its rule.
func byRoute(path string) core.Key {
	path = cmp.Or(path, "/")
	routes := make(map[string]string, len(methods))
	for _, m := range methods {
		routes[m] = m + " " + path
	}
	routes["HEAD"] = routes["GET"]
	other := "other " + path // clients can make up methods
	return core.KeyOf("route", func(r adapter.Request) (scope, text string, err error) {
		t, ok := r.(adapter.Targeter)
		if !ok {
			return "", "", errNoTarget
		}
		if route, known := routes[t.Target().Method]; known {
			return "", route, nil
		}
		return "", other, nil
	})
}

// methods are those that get a quota of their own under the key route.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"}

var errNoTarget = &gate.RulesError{Err: &core.ConfigError{
	Option: "rules", Value: "request",
	Problem: "this adapter does not report method, host and path",
	Remedy:  "give its requests a method Target (adapter.Targeter)",
}}
