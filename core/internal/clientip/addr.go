package clientip

import (
	"fmt"
	"net/netip"
)

// maxAddrLen is the longest text that is parsed: "[", an IPv6 address with its zone, "]:" and a port.
const maxAddrLen = 64

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

// ParseAddr parses an address with or without brackets and port. It returns the canonical form, or the zero Addr if s
// is no address.
func ParseAddr(s string) netip.Addr {
	a, _ := ParseAddrPort(s)
	return a
}

// ParseAddrPort is ParseAddr that also reports whether s has a port.
func ParseAddrPort(s string) (a netip.Addr, port bool) {
	if len(s) > maxAddrLen { // the error of netip would quote all of it
		return netip.Addr{}, false
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return Canonical(ap.Addr()), true
	}
	if n := len(s); n > 2 && s[0] == '[' && s[n-1] == ']' {
		if a, err := netip.ParseAddr(s[1 : n-1]); err == nil && a.Is6() {
			return Canonical(a), false
		}
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, false
	}
	return Canonical(a), false
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
