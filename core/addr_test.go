package core_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/allocs"
)

type foundKey struct{}

// found is a request in whose context earlier middleware has stored a value.
func found(value any) web {
	r := from("198.51.100.1:1")
	r.Request = r.WithContext(context.WithValue(r.Context(), foundKey{}, value))
	return r
}

func foundAddr(ctx context.Context) (netip.Addr, error) {
	a, _ := ctx.Value(foundKey{}).(netip.Addr)
	return a, nil
}

// Clients of middleware that finds addresses are those of ByIP, whatever the type of an address.
func TestFoundAddresses(t *testing.T) {
	byAddr, byValue := core.ByAddr(foundAddr), core.ByValue(foundKey{})
	as := map[string]struct {
		key core.Key
		of  func(netip.Addr) any
	}{
		"ByAddr":           {byAddr, func(a netip.Addr) any { return a }},
		"netip.Addr":       {byValue, func(a netip.Addr) any { return a }},
		"netip.AddrPort":   {byValue, func(a netip.Addr) any { return netip.AddrPortFrom(a, 4711) }},
		"net.IP":           {byValue, func(a netip.Addr) any { return net.IP(a.AsSlice()) }},
		"net.IP, 16 bytes": {byValue, func(a netip.Addr) any { b := a.As16(); return net.IP(b[:]) }},
		"*net.TCPAddr": {byValue, func(a netip.Addr) any {
			return net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, 4711))
		}},
		"*net.UDPAddr": {byValue, func(a netip.Addr) any {
			return net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 4711))
		}},
		"*net.IPAddr": {byValue, func(a netip.Addr) any { return &net.IPAddr{IP: a.AsSlice(), Zone: a.Zone()} }},
	}
	numbered := func(format string) (addresses []string) {
		for i := range 1000 {
			addresses = append(addresses, fmt.Sprintf(format, i))
		}
		return addresses
	}
	for name, c := range as {
		l := newLimiterBy(t, core.PerHour(1), c.key)
		for _, of := range []struct {
			desc      string
			addresses []string
			clients   int
		}{
			{"one /64", numbered("2001:db8::%x"), 1},
			{"1000 /64", numbered("2001:db8:1:%x::1"), 1000},
			{"IPv4 and mapped", []string{"192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2", "::ffff:192.0.2.2"}, 2},
			{"zones", []string{"fe80::1%eth0", "fe80::2%eth1"}, 1},
		} {
			clients := 0
			for _, address := range of.addresses {
				d, err := l.Check(found(c.of(netip.MustParseAddr(address))))
				if err != nil {
					t.Errorf("%s: %s: %v", name, address, err)
				}
				if d.Allowed {
					clients++
				}
			}
			if clients != of.clients {
				t.Errorf("%s, %s: %d addresses are %d clients, want %d", name, of.desc, len(of.addresses), clients,
					of.clients)
			}
		}
		ip, err := keyOf(t, core.ByIP(), from("203.0.113.9:1"))
		got, gotErr := keyOf(t, c.key, found(c.of(netip.MustParseAddr("203.0.113.9"))))
		if got != ip || !errors.Is(gotErr, err) {
			t.Errorf("%s: the key is %q, %v; that of ByIP is %q, %v", name, got, gotErr, ip, err)
		}
	}
}

func TestNoFoundAddress(t *testing.T) {
	broken := errors.New("broken")
	failing := func(err error) core.Key {
		return core.ByAddr(func(context.Context) (netip.Addr, error) { return netip.MustParseAddr("192.0.2.1"), err })
	}
	byAddr, byValue := core.ByAddr(foundAddr), core.ByValue(foundKey{})
	for _, c := range []struct {
		key   core.Key
		value any
		want  error
	}{
		{byAddr, nil, core.ErrNoKey}, {byAddr, netip.IPv6Unspecified(), core.ErrNoKey},
		{failing(core.ErrNoKey), nil, core.ErrNoKey}, {failing(broken), nil, broken},
		{byValue, netip.Addr{}, core.ErrNoKey}, {byValue, netip.IPv4Unspecified(), core.ErrNoKey},
		{byValue, netip.AddrPort{}, core.ErrNoKey}, {byValue, net.IP(nil), core.ErrNoKey},
		{byValue, net.IP("abc"), core.ErrNoKey}, {byValue, (*net.TCPAddr)(nil), core.ErrNoKey},
		{byValue, (*net.UnixAddr)(nil), core.ErrNoKey},
		{byValue, &net.UnixAddr{Name: "/run/sash.sock", Net: "unix"}, core.ErrNoKey},
	} {
		if _, err := keyOf(t, c.key, found(c.value)); !errors.Is(err, c.want) {
			t.Errorf("%T(%[1]v): %v, want %v", c.value, err, c.want)
		}
	}
}

// Lists name found addresses as those of ByIP, and texts that read like addresses as before.
func TestListsOfFoundAddresses(t *testing.T) {
	byAddr, byValue := core.ByAddr(foundAddr), core.ByValue(foundKey{})
	addr := netip.MustParseAddr("2001:db8::7")
	for _, c := range []struct {
		key   core.Key
		value any
		entry string
		names bool
	}{
		{byAddr, addr, "2001:db8::7", true}, {byAddr, addr, "2001:db8::8", false},
		{byAddr, addr, "2001:db8::/32", true},
		{byValue, addr, "2001:db8::7", true}, {byValue, addr, "2001:db8::8", false},
		{byValue, addr, "2001:db8::/32", true}, {byValue, "192.0.2.7", "192.0.2.7", true},
		{byValue, "192.0.2.7", "192.0.2.0/24", false}, {byValue, "ann", "ann", true},
		{core.First(byValue, core.Global()), addr, "2001:db8::/32", true},
		{core.First(byValue, core.Global()), "192.0.2.7", "192.0.2.7", true},
		{core.First(byValue, core.ByIP()), "192.0.2.7", "192.0.2.7", false},
	} {
		l := newLimiterBy(t, core.PerHour(9), core.ByText(), core.WithDenyList(c.key, c.entry))
		if _, err := l.Check(found(c.value)); errors.Is(err, core.ErrForbidden) != c.names {
			t.Errorf("%v, and a list with %s: %v, want it named: %v", c.value, c.entry, err, c.names)
		}
	}
}

func TestNothingIsAllocatedForFoundAddresses(t *testing.T) {
	addr := netip.MustParseAddr("2001:db8::7")
	tcp := net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr, 1))
	for name, c := range map[string]struct {
		key   core.Key
		value any
	}{
		"ByAddr": {core.ByAddr(foundAddr), addr}, "netip.Addr": {core.ByValue(foundKey{}), addr},
		"net.IP":       {core.ByValue(foundKey{}), net.IP(addr.AsSlice())},
		"*net.TCPAddr": {core.ByValue(foundKey{}), tcp},
		"By, a colon":  {core.By(func(context.Context) (string, error) { return "tenant:7", nil }), nil},
		"a text":       {core.ByValue(foundKey{}), "2001:db8::7"},
	} {
		l := newLimiterBy(t, core.PerSecond(100), c.key)
		r := adapter.Request(found(c.value))
		decide := func() {
			if _, err := l.Check(r); err != nil {
				t.Error(err)
			}
		}
		logged(t, func() {
			for range 20_000 {
				decide()
			}
		})
		if n := allocs.PerRun(10_000, decide); n != 0 {
			t.Errorf("%s: %v allocations a decision", name, n)
		}
	}
}
