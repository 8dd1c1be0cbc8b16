// Package signedagents gives agents that sign their requests a quota of their own, wherever they come from: by HTTP
// Message Signatures (RFC 9421), as Web Bot Auth uses them.
package signedagents

import (
	"crypto/ed25519"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/sashlimit/sash/core"
)

const (
	longest    = 24 * time.Hour  // from created to expires
	skew       = 5 * time.Second // by which an agent's clock may be fast
	components = 16              // of a signature, so that none takes long to verify
)

// Agents are the public keys of the agents that you know, by the ids in their signatures, which are thumbprints of the
// keys in Web Bot Auth. Fetch them from directories that you have chosen, and not because a request names one.
type Agents map[string]ed25519.PublicKey

// Key is the agent, or the address of a request that none has signed.
func (a Agents) Key() core.Key { return core.First(core.By(a.Signer), core.ByIP()) }

// Signer returns the id of the key that has signed a request. Any doubt about a signature is core.ErrNoKey: so whoever
// sends a wrong one uses the quota of the own address.
func (a Agents) Signer(r *http.Request) (id string, err error) {
	inputs, err := httpsfv.UnmarshalDictionary(r.Header["Signature-Input"])
	if err != nil {
		return "", core.ErrNoKey
	}
	signatures, err := httpsfv.UnmarshalDictionary(r.Header["Signature"])
	if err != nil {
		return "", core.ErrNoKey
	}
	for _, label := range inputs.Names() {
		member, _ := inputs.Get(label)
		input, ok := member.(httpsfv.InnerList)
		if !ok || param(input.Params, "tag") != "web-bot-auth" {
			continue // a signature for somebody else
		}
		member, _ = signatures.Get(label)
		signature, _ := member.(httpsfv.Item)
		bytes, _ := signature.Value.([]byte)
		id, _ := param(input.Params, "keyid").(string)
		base, ok := signed(r, input)
		if key := a[id]; ok && key != nil && isFresh(input.Params) && ed25519.Verify(key, []byte(base), bytes) {
			return id, nil
		}
		break // a request costs one verification at most
	}
	return "", core.ErrNoKey
}

func param(params *httpsfv.Params, name string) any {
	value, _ := params.Get(name)
	return value
}

// isFresh reports whether a signature counts now, and is not made for longer than it may be.
func isFresh(params *httpsfv.Params) bool {
	from, hasFrom := param(params, "created").(int64)
	to, hasTo := param(params, "expires").(int64)
	now, created, expires := time.Now(), time.Unix(from, 0), time.Unix(to, 0)
	return hasFrom && hasTo && !created.After(now.Add(skew)) && now.Before(expires) && expires.Sub(created) <= longest
}

// signed returns the text that was signed (RFC 9421, 2.5). It must have the authority: a signature that an agent has
// made for another site does not count here.
func signed(r *http.Request, input httpsfv.InnerList) (base string, ok bool) {
	var lines strings.Builder
	var names []string
	for _, item := range input.Items {
		name, err := httpsfv.Marshal(item)
		value, known := component(r, item)
		if err != nil || !known || slices.Contains(names, name) || len(names) == components {
			return "", false
		}
		names = append(names, name)
		lines.WriteString(name + ": " + value + "\n")
	}
	params, err := httpsfv.Marshal(input)
	return lines.String() + `"@signature-params": ` + params, err == nil && slices.Contains(names, `"@authority"`)
}

// component returns what a request has as a component of a signature: of those that are derived, the most common; a
// field of the header; or with the parameter key, a member of a field that is a dictionary, such as Signature-Agent.
func component(r *http.Request, item httpsfv.Item) (value string, ok bool) {
	name, _ := item.Value.(string)
	values := r.Header[http.CanonicalHeaderKey(name)]
	key, isMember := param(item.Params, "key").(string)
	switch {
	case isMember && len(item.Params.Names()) == 1:
		fields, err := httpsfv.UnmarshalDictionary(values)
		if err != nil {
			return "", false
		}
		member, has := fields.Get(key)
		if !has {
			return "", false
		}
		value, err = httpsfv.Marshal(member)
		return value, err == nil
	case len(item.Params.Names()) > 0 || name != strings.ToLower(name):
		return "", false
	case name == "@authority":
		return strings.ToLower(r.Host), true
	case name == "@method":
		return r.Method, true
	case name == "@path":
		return r.URL.EscapedPath(), true
	}
	return strings.Join(values, ", "), values != nil // net/http has trimmed them
}
