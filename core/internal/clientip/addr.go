package clientip

import (
	"fmt"
	"net/netip"

	"github.com/sashlimit/sash/core/adapter"
)

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
