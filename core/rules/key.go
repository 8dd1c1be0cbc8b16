package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/bridge"
)

var keyWords = []string{"ip", "global", "route"}

// key is a KEY of the file.
type key struct {
	core.Key

	text  string // the same for equal keys
	label string // in the names of logs
	addrs bool   // it may find an address
	tuple bool   // its texts are not what somebody would write
}

// keys makes the keys of a file. Equal keys are one core.Key, so that a request reads each once.
type keys struct {
	*faults
	*options

	prefix string // of the default names of limits: of the rule that is read
	route  string // its path
	known  map[string]*key
}

// word makes the key of a word: of keyWords, or of a descriptor the name of a value.
func (k *keys) word(word string) *key {
	switch word {
	case "ip":
		return k.make(&key{Key: core.ByIP(), text: word, label: word, addrs: true})
	case "global":
		return k.make(&key{Key: core.Global(), text: word, label: word})
	case "route":
		return k.make(&key{Key: byRoute(k.route), text: "route " + k.route, label: word})
	}
	return k.make(&key{Key: core.ByValue(word), text: "value " + word, label: label("value", word)})
}

// make returns the equal key that was made before, or this one.
func (k *keys) make(one *key) *key {
	if known := k.known[one.text]; known != nil {
		return known
	}
	one.Key = engine.Labelled(one.Key, one.label)
	k.known[one.text] = one
	return one
}

// of makes the key of a node. It returns nil after a mistake.
func (k *keys) of(n *yaml.Node, field string, words []string) *key {
	if n.Kind == yaml.ScalarNode {
		if words != nil && !slices.Contains(words, n.Value) {
			return nil // the shape has told it
		}
		if n.Value == "" {
			k.add(n, field, "the key is empty", "write a key, such as ip")
			return nil
		}
		return k.word(n.Value)
	}
	if n.Kind != yaml.MappingNode {
		return nil
	}
	var kinds []string
	for _, kind := range []string{"forwarded", "header", "claim", "value", "join", "first"} {
		if get(n, kind) != nil {
			kinds = append(kinds, kind)
		}
	}
	switch {
	case len(kinds) == 0:
		k.add(first(n), field, "this says no key", "write one of forwarded, header, claim, value, join and first")
		return nil
	case len(kinds) > 1:
		k.add(nameNode(n, kinds[1]), join(field, kinds[1]), "there are two keys: "+strings.Join(kinds, " and "),
			"keep one, or write first: or join: with a list of both")
		return nil
	}
	if kinds[0] != "header" && get(n, "verify") != nil {
		k.add(nameNode(n, "verify"), join(field, "verify"), "only the value of a header is verified", "remove it")
	}
	at, name := get(n, kinds[0]), join(field, kinds[0])
	switch kinds[0] {
	case "forwarded":
		return k.forwarded(at, name)
	case "header":
		return k.header(n, at, field)
	case "claim":
		return k.claim(at, name)
	case "value":
		if at.Value == "" {
			k.add(at, name, "the name is empty", "write the name under which earlier middleware stores the value")
			return nil
		}
		return k.word2("value", at.Value)
	}
	return k.several(at, name, kinds[0])
}

// word2 makes the key of a value, whatever its name is.
func (k *keys) word2(kind, name string) *key {
	return k.make(&key{Key: core.ByValue(name), text: kind + " " + name, label: label(kind, name)})
}

func (k *keys) forwarded(n *yaml.Node, field string) *key {
	networks := make([]string, 0, len(n.Content))
	for i, one := range items(n) {
		if networks = append(networks, one.Value); k.fault(one, item(field, i), core.ByForwardedIP(one.Value)) {
			return nil
		}
	}
	if len(networks) == 0 {
		k.add(n, field, "no network is trusted", "name those of your proxies, such as 10.0.0.0/8; without any, use ip")
		return nil
	}
	one := &key{Key: core.ByForwardedIP(networks...), label: "forwarded", addrs: true}
	one.text = "forwarded " + strings.Join(networks, " ")
	return k.make(one)
}

func (k *keys) header(n, at *yaml.Node, field string) *key {
	verifier := get(n, "verify")
	if verifier == nil {
		k.add(nameNode(n, "header"), field, "nobody verifies the header",
			"add verify: with a registered verifier, or verify: unverified to take the value as it is")
		return nil
	}
	verify := k.verifiers[verifier.Value]
	if verifier.Value == "unverified" {
		verify = core.Unverified
	}
	if verify == nil {
		k.add(verifier, join(field, "verify"), fmt.Sprintf("the verifier %q is not registered", cut(verifier.Value)),
			"register it with rules.WithVerifier; "+k.registered())
		return nil
	}
	made := core.ByHeader(at.Value, verify)
	if k.fault(at, join(field, "header"), made) {
		return nil
	}
	name := strings.ToLower(at.Value)
	return k.make(&key{
		Key: made, text: "header " + name + " " + verifier.Value, label: label("header", name),
	})
}

func (k *keys) registered() string {
	if len(k.verifiers) == 0 {
		return "none is registered"
	}
	names := make([]string, 0, len(k.verifiers))
	for name := range k.verifiers {
		names = append(names, name)
	}
	slices.Sort(names)
	return "registered are " + strings.Join(names, ", ")
}

func (k *keys) claim(at *yaml.Node, field string) *key {
	switch {
	case at.Value == "":
		k.add(at, field, "the name is empty", "write the name of a claim, such as sub")
		return nil
	case k.claims == nil:
		k.add(at, field, "the program reads no claims", "give rules.WithClaims a function, such as one that returns a "+
			"key of package jwtkey")
		return nil
	}
	made := k.claims(at.Value)
	if k.fault(at, field, made) {
		return nil
	}
	return k.make(&key{Key: made, text: "claim " + at.Value, label: label("claim", at.Value)})
}

// several makes the key of a list of keys.
func (k *keys) several(n *yaml.Node, field, kind string) *key {
	one := &key{tuple: kind == "join"}
	var parts []core.Key
	var texts []string
	for i, part := range items(n) {
		made := k.of(part, item(field, i), keyWords)
		if made == nil {
			return nil
		}
		if slices.Contains(texts, made.text) {
			k.add(part, item(field, i), "this key is there twice", "remove one")
			return nil
		}
		parts, texts = append(parts, made.Key), append(texts, made.text)
		one.addrs, one.tuple = one.addrs || made.addrs, one.tuple || made.tuple
	}
	if len(parts) == 0 {
		k.add(n, field, "the list is empty", "write at least one key")
		return nil
	}
	if one.Key = core.First(parts...); kind == "join" {
		one.Key, one.addrs = core.Join(parts...), false
	}
	one.text = kind + " (" + strings.Join(texts, ") (") + ")"
	one.label = kind + "-" + hash(one.text)
	return k.make(one)
}

// joined is the key of a descriptor below others.
func (k *keys) joined(above []*key) *key {
	if len(above) == 1 {
		return above[0]
	}
	parts, texts := make([]core.Key, len(above)), make([]string, len(above))
	for i, one := range above {
		parts[i], texts[i] = one.Key, one.text
	}
	return k.make(&key{
		Key: core.Join(parts...), text: "join (" + strings.Join(texts, ") (") + ")", tuple: true, label: "join",
	})
}

// fault reports what is wrong with a key, at a node.
func (k *keys) fault(at *yaml.Node, field string, made core.Key) bool {
	err := engine.Check(made)
	if err == nil {
		return false
	}
	problem, remedy := reason(err)
	k.add(at, field, problem, remedy)
	return true
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

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

// byRoute is the key of a request's method and the path of its rule.
func byRoute(path string) core.Key {
	if path == "" {
		path = "/"
	}
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

var errNoTarget = &bridge.RulesError{Err: &core.ConfigError{
	Option: "rules", Value: "request",
	Problem: "this adapter does not report method, host and path",
	Remedy:  "give its requests a method Target (adapter.Targeter)",
}}
