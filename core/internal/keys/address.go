package keys

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/clientip"
	"github.com/sashlimit/sash/core/store"
)

// ByIP finds the address of the TCP peer.
func ByIP() *Spec {
	return &Spec{
		Name: "ByIP", Kinds: []string{kindIP},
		Read: func(r adapter.Request, p *Prefixes) (store.Identity, error) {
			peer := r.Peer()
			if peer.Rewritten {
				p.Warnings.peerReplaced(r)
			}
			p.Warnings.peerUsed(r)
			return p.address(peer.Addr)
		},
		FromText: func(text string, p *Prefixes) (store.Identity, bool) {
			id, err := p.address(clientip.ParseAddr(text))
			return id, err == nil
		},
	}
}

// ByAddr finds the address that find returns.
func ByAddr(find func(adapter.Request) (netip.Addr, error), of Callback) *Spec {
	k := ByIP()
	k.Name, k.Callbacks = "ByAddr", []Callback{of}
	k.Read = func(r adapter.Request, p *Prefixes) (store.Identity, error) {
		a, err := find(r)
		if err != nil {
			return store.Identity{}, err
		}
		return p.address(a)
	}
	return k
}

// ByForwardedIP finds the address that trusted proxies report in X-Forwarded-For.
func ByForwardedIP(trusted []string) *Spec {
	return byProxies("ByForwardedIP", trusted, "X-Forwarded-For", clientip.XForwardedFor)
}

// ByForwarded finds the address that trusted proxies report in Forwarded.
func ByForwarded(trusted []string) *Spec {
	return byProxies("ByForwarded", trusted, "Forwarded", clientip.Forwarded)
}

// ByIPHeader finds the address that a trusted proxy reports in a field with one address.
func ByIPHeader(name string, trusted []string) *Spec {
	k := byProxies("ByIPHeader", trusted, name, clientip.SingleAddr)
	var problem, remedy string
	switch lower := strings.ToLower(name); {
	case !clientip.IsToken(name):
		problem = "this is not the name of a header field"
		remedy = `use letters, digits and '-', as in "CF-Connecting-IP"`
	case lower == "x-forwarded-for":
		problem, remedy = "this field is a list", "use ByForwardedIP"
	case lower == "forwarded":
		problem, remedy = "this field is a list", "use ByForwarded"
	default:
		return k
	}
	k.Fault = errors.Join(k.Fault, configError("ByIPHeader", strconv.Quote(name), problem, remedy))
	return k
}

// hopIdentity returns the identity of the client at h. The peer on a Unix socket is always unidentified.
func hopIdentity(h clientip.Hop, p *Prefixes) store.Identity {
	switch {
	case !h.Addr.IsValid():
		return store.Identity{Kind: kindUnidentified, Text: clientip.UnixSocket}
	case h.Unidentified:
		return p.identity(kindUnidentified, h.Addr)
	}
	return p.identity(kindIP, h.Addr)
}

func byProxies(option string, trusted []string, header string, read clientip.Reader) *Spec {
	k := ByIP()
	k.Name, k.Kinds = option, append(k.Kinds, kindUnidentified)
	proxies := k.trust(trusted)
	k.Read = func(r adapter.Request, p *Prefixes) (store.Identity, error) {
		peer := r.Peer()
		if peer.Rewritten {
			p.Warnings.peerReplaced(r)
		}
		from := clientip.Hop{Addr: clientip.Canonical(peer.Addr)}
		switch {
		case from.Addr.IsValid():
			if !proxies.Trust(from.Addr) {
				return hopIdentity(from, p), nil
			}
		case !peer.Unix || !proxies.TrustUnix():
			return store.Identity{}, ErrNoKey
		}
		lines := r.Header(header)
		if clientip.Blank(lines) {
			p.Warnings.headerMissing(r, header)
			return hopIdentity(from, p), nil
		}
		return hopIdentity(read(lines, proxies, from), p), nil
	}
	return k
}

// trust returns the proxies of a key, and notes mistakes.
func (k *Spec) trust(trusted []string) *clientip.Proxies {
	p := new(clientip.Proxies)
	if len(trusted) == 0 {
		k.Fault = configError(k.Name, "", "there are no proxies to trust",
			`name them, as in "10.0.0.0/8"; without proxies, use ByIP`)
	}
	for _, s := range trusted {
		var wrong *clientip.Error
		if errors.As(p.Add(s), &wrong) {
			k.Fault = errors.Join(k.Fault, configError(k.Name, strconv.Quote(s), wrong.Problem, wrong.Remedy))
		}
	}
	return p
}
