package core

import (
	"errors"
	"strconv"
	"strings"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/clientip"
	"github.com/sashlimit/sash/core/internal/setup"
)

// ByIP is the address of the TCP peer. No header is read, because any client can write one. Behind a proxy, it is the
// proxy's address, and all its clients share one quota.
//
// IPv6 clients are distinguished by their /64, which is the smallest prefix that a subscriber has. IPv4-mapped
// addresses count as IPv4. A peer without an address, as on a Unix socket, is [ErrNoKey].
func ByIP() Key {
	return Key{&keySpec{
		name: "ByIP", classes: []setup.KeyClass{{Kind: kindIP, Address: true}},
		byPrefix: true,
		read: func(r adapter.Request, p *prefixes) (identity, error) {
			peer := r.Peer()
			if peer.Rewritten {
				p.check.PeerReplaced(r)
			}
			p.check.PeerUsed(r)
			a := clientip.Canonical(peer.Addr)
			if !a.IsValid() {
				return identity{}, ErrNoKey
			}
			return p.identity(a), nil
		},
		fromText: func(text string, p *prefixes) (identity, bool) {
			a := clientip.ParseAddr(text)
			if !a.IsValid() {
				return identity{}, false
			}
			return p.identity(a), true
		},
	}}
}

// ByForwardedIP is the client's address as trusted proxies report it in X-Forwarded-For. Each proxy appends the address
// that it received the request from. The list is read from its end, starting with the peer of the connection, up to the
// first address that is not a trusted proxy's. Everything before it was written by the client and is not read.
//
//	core.ByForwardedIP("10.0.0.0/8", "2001:db8:ffff::/48")
//
// Name the addresses and prefixes of your own proxies, and "unix" for a listener on a Unix socket. Trust nothing else:
// a client with a trusted address chooses its own key. A peer that is not trusted is the client itself, whatever header
// it sends. If a trusted proxy reports something that is not an address, the request's key is one that all such
// requests of this proxy share; it is not the proxy's own. Prefix lengths are those of [ByIP].
func ByForwardedIP(trusted ...string) Key {
	return byProxies("ByForwardedIP", trusted, "X-Forwarded-For", clientip.XForwardedFor)
}

// ByForwarded is [ByForwardedIP] for the Forwarded field of RFC 7239.
func ByForwarded(trusted ...string) Key {
	return byProxies("ByForwarded", trusted, "Forwarded", clientip.Forwarded)
}

// ByIPHeader is the client's address as a trusted proxy reports it in a header field with one address, such as
// CF-Connecting-IP. The proxy must overwrite what the client sends. See [ByForwardedIP] for trusted.
func ByIPHeader(name string, trusted ...string) Key {
	k := byProxies("ByIPHeader", trusted, name, clientip.SingleAddr)
	var wrong fault
	switch lower := strings.ToLower(name); {
	case !clientip.IsToken(name):
		wrong = fault{"this is not the name of a header field", `use letters, digits and '-', as in "CF-Connecting-IP"`}
	case lower == "x-forwarded-for":
		wrong = fault{"this field is a list", "use ByForwardedIP"}
	case lower == "forwarded":
		wrong = fault{"this field is a list", "use ByForwarded"}
	default:
		return k
	}
	k.fault = errors.Join(k.fault, wrong.error("ByIPHeader", strconv.Quote(name)))
	return k
}

// hopIdentity returns the identity of the client at h. The peer on a Unix socket is always unidentified.
func hopIdentity(h clientip.Hop, p *prefixes) identity {
	if !h.Addr.IsValid() {
		return identity{Kind: kindUnidentified, Text: clientip.UnixSocket}
	}
	id := p.identity(h.Addr)
	if h.Unidentified {
		id.Kind = kindUnidentified
	}
	return id
}

func byProxies(option string, trusted []string, header string, read clientip.Reader) Key {
	proxies, fault := parseProxies(option, trusted)
	k := ByIP()
	k.name, k.fault, k.classes = option, fault, append(k.classes, setup.KeyClass{Kind: kindUnidentified, Address: true})
	k.read = func(r adapter.Request, p *prefixes) (identity, error) {
		peer := r.Peer()
		if peer.Rewritten {
			p.check.PeerReplaced(r)
		}
		from := clientip.Hop{Addr: clientip.Canonical(peer.Addr)}
		switch {
		case from.Addr.IsValid():
			if !proxies.Trust(from.Addr) {
				return hopIdentity(from, p), nil
			}
		case !peer.Unix || !proxies.TrustUnix():
			return identity{}, ErrNoKey
		}
		lines := r.Header(header)
		if clientip.Blank(lines) {
			p.check.HeaderMissing(r, header)
			return hopIdentity(from, p), nil
		}
		return hopIdentity(read(lines, proxies, from), p), nil
	}
	return k
}

func parseProxies(option string, trusted []string) (*clientip.Proxies, error) {
	p := new(clientip.Proxies)
	var faults []error
	if len(trusted) == 0 {
		faults = append(faults, configError(option, "", "there are no proxies to trust",
			`name them, as in "10.0.0.0/8"; without proxies, use ByIP`))
	}
	for _, s := range trusted {
		var wrong *clientip.Error
		if errors.As(p.Add(s), &wrong) {
			faults = append(faults, fault{wrong.Problem, wrong.Remedy}.error(option, strconv.Quote(s)))
		}
	}
	return p, errors.Join(faults...)
}
