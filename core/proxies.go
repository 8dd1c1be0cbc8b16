package core

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

const (
	mostHops = 64 // trusted ones that are followed back
	unixHop  = "unix"

	kindIP           = "ip"
	kindUnidentified = "ip-unidentified"
)

// ByForwardedIP is the client's address as proxies that you trust report it in
// X-Forwarded-For. Each of them has appended whom it saw, so the list is walked
// from the right, beginning with the peer itself, to the first address that is not a
// trusted proxy. What stands left of that was written by the client and is not read.
//
//	core.ByForwardedIP("10.0.0.0/8", "2001:db8:ffff::/48")
//
// Trusted are addresses and prefixes of your own proxies, and "unix" for a listener on a
// Unix socket. Trust no more than that: whoever sends from a trusted address chooses his
// key. A peer that is not trusted is the client, whatever it sends. Where a trusted proxy
// reports something that is no address, such requests share a key of their own, apart from
// the proxy's. Prefix lengths are those of [ByIP].
func ByForwardedIP(trusted ...string) Key {
	return byProxies("ByForwardedIP", trusted, "X-Forwarded-For", func(lines []string, p *proxies, at hop) hop {
		return walk(lines, p, at, parseAddr)
	})
}

// ByForwarded is [ByForwardedIP] for the Forwarded field of RFC 7239.
func ByForwarded(trusted ...string) Key {
	return byProxies("ByForwarded", trusted, "Forwarded", func(lines []string, p *proxies, at hop) hop {
		return walk(lines, p, at, forwardedFor)
	})
}

// ByIPHeader is the client's address as an edge that you trust puts it into a
// header of its own with one address, such as CF-Connecting-IP. The edge must
// overwrite what the client sends. See [ByForwardedIP] for trusted.
func ByIPHeader(name string, trusted ...string) Key {
	k := byProxies("ByIPHeader", trusted, name, func(lines []string, _ *proxies, at hop) hop {
		if len(lines) == 1 {
			if a := parseAddr(blank.trim(lines[0])); a.IsValid() {
				return hop{addr: a}
			}
		}
		return at.unidentified()
	})
	switch lower := strings.ToLower(name); {
	case !validHeaderName(name):
		k.fault = errors.Join(k.fault, &ConfigError{Option: "ByIPHeader", Value: strconv.Quote(name), Reason: "a header's name is letters, digits and '-', such as \"CF-Connecting-IP\""})
	case lower == "x-forwarded-for":
		k.fault = errors.Join(k.fault, &ConfigError{Option: "ByIPHeader", Value: strconv.Quote(name), Reason: "it is a list: use ByForwardedIP"})
	case lower == "forwarded":
		k.fault = errors.Join(k.fault, &ConfigError{Option: "ByIPHeader", Value: strconv.Quote(name), Reason: "it is a list: use ByForwarded"})
	}
	return k
}

// hop is a place on the way from the client: an address, or the Unix socket.
type hop struct {
	addr    netip.Addr
	unknown bool // it has reported something that is no address
}

func (h hop) unidentified() hop { h.unknown = true; return h }

func (h hop) identity(m *masks) identity {
	id := identity{kind: kindIP, text: unixHop}
	if h.addr.IsValid() {
		id = m.identity(h.addr)
	} else {
		h.unknown = true // a Unix socket is nobody's address
	}
	if h.unknown {
		id.kind = kindUnidentified
	}
	return id
}

func byProxies(option string, trusted []string, header string, read func([]string, *proxies, hop) hop) Key {
	p, fault := parseProxies(option, trusted)
	k := ByIP()
	k.name, k.fault, k.classes = option, fault, append(k.classes, keyClass{kind: kindUnidentified})
	k.read = func(r Request, m *masks) (identity, error) {
		peer := r.Peer()
		if peer.Rewritten {
			m.watch.replaced(r)
		}
		at := hop{addr: canonical(peer.Addr)}
		switch {
		case at.addr.IsValid():
			if !p.trust(at.addr) {
				return at.identity(m), nil
			}
		case !peer.Unix || !p.unix:
			return identity{}, ErrNoKey
		}
		lines := r.Header(header)
		if blank.all(lines) {
			m.watch.silent(r, header)
			return at.identity(m), nil
		}
		return read(lines, p, at).identity(m), nil
	}
	return k
}

// walk follows a list back from its end. An empty element is not skipped, although a list may
// have some: it means that a trusted proxy appended nothing, and the one before is the client's word.
func walk(lines []string, p *proxies, at hop, parse func(string) netip.Addr) hop {
	hops := 0
	for _, line := range slices.Backward(lines) {
		for rest, more := line, true; more; {
			comma := strings.LastIndexByte(rest, ',')
			element := blank.trim(rest[comma+1:])
			if more = comma >= 0; more {
				rest = rest[:comma]
			}
			a := parse(element)
			if hops++; !a.IsValid() || hops > mostHops {
				return at.unidentified()
			}
			at = hop{addr: a}
			if !p.trust(a) {
				return at
			}
		}
	}
	return at
}

// forwardedFor is the address of the for parameter of one element (RFC 7239, 4). The
// text after the last comma is such an element even if a client has left a quote open before it.
func forwardedFor(element string) netip.Addr {
	var node string
	found := false
	for len(element) > 0 {
		name, rest, ok := strings.Cut(element, "=")
		if !ok {
			return netip.Addr{}
		}
		value, rest, ok := forwardedValue(blank.trim(rest))
		if !ok {
			return netip.Addr{}
		}
		if strings.EqualFold(blank.trim(name), "for") {
			if found {
				return netip.Addr{}
			}
			node, found = value, true
		} else if !validHeaderName(blank.trim(name)) {
			return netip.Addr{}
		}
		if rest = blank.trim(rest); rest == "" {
			break
		}
		if rest[0] != ';' {
			return netip.Addr{}
		}
		element = blank.trim(rest[1:])
	}
	if at := strings.LastIndex(node, ":_"); at >= 0 && validHeaderName(node[at+2:]) {
		node = node[:at] // an obfuscated port
	}
	return parseAddr(node)
}

// forwardedValue cuts a token or a quoted string off.
func forwardedValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexByte(s, ';')
		if end < 0 {
			end = len(s)
		}
		value = blank.trim(s[:end])
		return value, s[end:], value != "" && !strings.ContainsAny(value, "\" \t\\")
	}
	var b []byte
	for i := 1; i < len(s) && len(b) <= longestAddr; i++ {
		switch s[i] {
		case '"':
			return string(b), s[i+1:], true
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
		}
		b = append(b, s[i])
	}
	return "", "", false
}

// blank is what may stand around elements.
const blank = whitespace(" \t")

type whitespace string

func (w whitespace) trim(s string) string { return strings.Trim(s, string(w)) }

func (w whitespace) all(lines []string) bool {
	for _, line := range lines {
		if w.trim(line) != "" {
			return false
		}
	}
	return true
}

// proxies are those whose word about a client is taken.
type proxies struct {
	prefixes []netip.Prefix
	unix     bool
}

func (p *proxies) trust(a netip.Addr) bool {
	for _, prefix := range p.prefixes {
		if prefix.Contains(a) {
			return true
		}
	}
	return false
}

func parseProxies(option string, trusted []string) (*proxies, error) {
	p := new(proxies)
	var faults []error
	if len(trusted) == 0 {
		faults = append(faults, &ConfigError{Option: option, Reason: "name the proxies to trust, such as \"10.0.0.0/8\"; without any, use ByIP"})
	}
	for _, s := range trusted {
		if s == unixHop {
			p.unix = true
			continue
		}
		prefix, err := parsePrefix(s)
		if err != nil {
			faults = append(faults, &ConfigError{Option: option, Value: strconv.Quote(s), Reason: err.Error()})
			continue
		}
		p.prefixes = append(p.prefixes, prefix)
	}
	return p, errors.Join(faults...)
}

func parsePrefix(s string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		a, addrErr := netip.ParseAddr(s)
		if addrErr != nil || a.Zone() != "" {
			return prefix, errors.New("write an address (10.0.0.1), a prefix (10.0.0.0/8) or \"unix\"")
		}
		prefix = netip.PrefixFrom(a, a.BitLen())
	}
	if prefix.Addr().Is4In6() {
		if prefix.Bits() < 96 {
			return prefix, fmt.Errorf("as a prefix of mapped IPv4 addresses it has at least 96 bits, not %d", prefix.Bits())
		}
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	if prefix.Bits() == 0 {
		return prefix, errors.New("that is everybody, so every client could choose its key: name your proxies")
	}
	return prefix.Masked(), nil
}
