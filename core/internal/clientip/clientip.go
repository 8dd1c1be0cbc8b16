// Package clientip finds a client's address in the header fields in which proxies report it.
//
// Each proxy appends the address that it received a request from. The list is therefore followed from its end, starting
// at the peer of the connection, as long as the addresses are those of trusted proxies. The first other address is the
// client's. Everything before it was written by the client and is not read.
package clientip

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sashlimit/sash/core/adapter"
)

// UnixSocket is the word for a listener on a Unix socket among trusted proxies.
const UnixSocket = "unix"

const maxHops = 64 // trusted proxies that are followed

// Hop is a sender of a request: a client, a proxy, or with an Addr that is not valid the peer at a Unix socket.
type Hop struct {
	Addr netip.Addr

	// Unidentified says that the hop is a trusted proxy that has reported something else than an address, so that
	// nothing is known of the client behind it.
	Unidentified bool
}

func (h Hop) unidentified() Hop { h.Unidentified = true; return h }

// Proxies is the set of trusted proxies. The zero value is empty.
type Proxies struct {
	prefixes []netip.Prefix
	unix     bool
}

// Add adds an address, a prefix, or [UnixSocket]. See [ParsePrefix] for errors.
func (p *Proxies) Add(s string) error {
	if s == UnixSocket {
		p.unix = true
		return nil
	}
	prefix, err := ParsePrefix(s)
	if err == nil {
		p.prefixes = append(p.prefixes, prefix)
	}
	return err
}

// Trust reports whether the address, which is canonical, is in the set.
func (p *Proxies) Trust(a netip.Addr) bool {
	return slices.ContainsFunc(p.prefixes, func(known netip.Prefix) bool { return known.Contains(a) })
}

// TrustUnix reports whether [UnixSocket] is in the set.
func (p *Proxies) TrustUnix() bool { return p.unix }

// Reader finds the client in the lines of a header field, starting at a trusted proxy.
type Reader func(lines []string, p *Proxies, from Hop) Hop

// XForwardedFor is the [Reader] of X-Forwarded-For.
func XForwardedFor(lines []string, p *Proxies, from Hop) Hop { return walk(lines, p, from, ParseAddr) }

// Forwarded is the [Reader] of Forwarded (RFC 7239).
func Forwarded(lines []string, p *Proxies, from Hop) Hop { return walk(lines, p, from, forwardedFor) }

// SingleAddr is the [Reader] of a field with one address, which the proxy overwrites.
func SingleAddr(lines []string, _ *Proxies, from Hop) Hop {
	if len(lines) == 1 {
		if a := ParseAddr(trim(lines[0])); a.IsValid() {
			return Hop{Addr: a}
		}
	}
	return from.unidentified()
}

// walk follows a list from its end. It does not skip empty elements, although RFC 9110 allows them in a list: with an
// empty element a trusted proxy has appended nothing, and the element before it is what the client wrote.
func walk(lines []string, p *Proxies, at Hop, parse func(string) netip.Addr) Hop {
	hops := 0
	for _, line := range slices.Backward(lines) {
		for rest, more := line, true; more; {
			comma := strings.LastIndexByte(rest, ',')
			element := trim(rest[comma+1:])
			if more = comma >= 0; more {
				rest = rest[:comma]
			}
			a := parse(element)
			if hops++; !a.IsValid() || hops > maxHops {
				return at.unidentified()
			}
			at = Hop{Addr: a}
			if !p.Trust(a) {
				return at
			}
		}
	}
	return at
}

// forwardedFor is the address in the "for" parameter of an element of Forwarded (RFC 7239, section 4), or the zero
// Addr. The text after the last comma is an element even if a client has left a quote open before it.
func forwardedFor(element string) netip.Addr {
	var node string
	found := false
	for len(element) > 0 {
		name, rest, ok := strings.Cut(element, "=")
		if !ok {
			return netip.Addr{}
		}
		value, rest, ok := cutValue(trim(rest))
		if !ok {
			return netip.Addr{}
		}
		if strings.EqualFold(trim(name), "for") {
			if found {
				return netip.Addr{}
			}
			node, found = value, true
		} else if !IsToken(trim(name)) {
			return netip.Addr{}
		}
		if rest = trim(rest); rest == "" {
			break
		}
		if rest[0] != ';' {
			return netip.Addr{}
		}
		element = trim(rest[1:])
	}
	if at := strings.LastIndex(node, ":_"); at >= 0 && IsToken(node[at+2:]) {
		node = node[:at] // an obfuscated port
	}
	return ParseAddr(node)
}

// cutValue cuts a token or a quoted string off the front of s.
func cutValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexByte(s, ';')
		if end < 0 {
			end = len(s)
		}
		value = trim(s[:end])
		return value, s[end:], value != "" && !strings.ContainsAny(value, "\" \t\\")
	}
	var b []byte
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return string(b), s[i+1:], true
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
		}
		if len(b) <= adapter.LongestAddr { // what is longer is no address, and may be another parameter's
			b = append(b, s[i])
		}
	}
	return "", "", false
}

// Canonical returns the one form in which an address is compared: IPv4-mapped IPv6 becomes IPv4, however it was
// written, and the zone is removed, because it does not identify a client. The unspecified address becomes the zero
// Addr, which is not valid.
func Canonical(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}

// ParseAddr is [adapter.ParseAddr] that returns the canonical form.
func ParseAddr(s string) netip.Addr {
	a, _ := adapter.ParseAddr(s)
	return Canonical(a)
}

// Error is what is wrong with a prefix.
type Error struct{ Problem, Remedy string }

func (e *Error) Error() string { return e.Problem + "; " + e.Remedy }

// ParsePrefix parses a prefix, or an address as the prefix that holds nothing else. A prefix of IPv4-mapped addresses
// becomes one of IPv4. The prefix of all addresses is an error. Every error is an [Error].
func ParsePrefix(s string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		a, addrErr := netip.ParseAddr(s)
		if addrErr != nil || a.Zone() != "" {
			return prefix, &Error{"this is not an address",
				`write an address (10.0.0.1), a prefix (10.0.0.0/8) or "unix"`}
		}
		prefix = netip.PrefixFrom(a, a.BitLen())
	}
	if prefix.Addr().Is4In6() {
		if prefix.Bits() < 96 {
			return prefix, &Error{
				fmt.Sprintf("a prefix of mapped IPv4 addresses has at least 96 bits, not %d", prefix.Bits()),
				"write a prefix of IPv4 addresses",
			}
		}
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	if prefix.Bits() == 0 {
		return prefix, &Error{"it contains all addresses, so every client could choose its key", "name your proxies"}
	}
	return prefix.Masked(), nil
}

// IsToken reports whether s is a token (RFC 9110, section 5.6.2), as the names of header fields are.
func IsToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// trim removes the whitespace that may surround elements and parameters.
func trim(s string) string { return strings.Trim(s, " \t") }

// Blank reports whether there is nothing but whitespace in any line.
func Blank(lines []string) bool {
	return !slices.ContainsFunc(lines, func(line string) bool { return trim(line) != "" })
}
