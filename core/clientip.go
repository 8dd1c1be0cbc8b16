package core

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// ByIP is the address of the TCP peer: whoever holds the connection. No header
// is read, because every client can write one. Behind a proxy that is the
// proxy's address, and all its clients share one quota.
//
// IPv6 clients are told apart by their /64, which is the least that one
// subscriber has; IPv4-mapped addresses count as IPv4. A peer without an address, as on a
// Unix socket, is [ErrNoKey].
func ByIP() Key {
	return Key{
		name: "ByIP", classes: []keyClass{{kind: kindIP}},
		addrs:  true,
		noText: true,
		read: func(r Request, m *masks) (identity, error) {
			peer := r.Peer()
			if peer.Rewritten {
				m.watch.replaced(r)
			}
			m.watch.look(r)
			a := canonical(peer.Addr)
			if !a.IsValid() {
				return identity{}, ErrNoKey
			}
			return m.identity(a), nil
		},
		named: func(text string, m *masks) (identity, bool) {
			a := parseAddr(text)
			if !a.IsValid() {
				return identity{}, false
			}
			return m.identity(a), true
		},
	}
}

// Peer is the other end of the connection that a request came over.
type Peer struct {
	Addr netip.Addr // not valid where there is none, as on a Unix socket
	Unix bool       // the listener is a Unix socket

	// Rewritten says that the address came without a port, which no server leaves
	// out: other middleware has put something else in its place.
	Rewritten bool
}

// PeerOf is the peer of a net/http request. RemoteAddr may carry a port, as
// the server writes it, or be a bare address.
func PeerOf(r *http.Request) Peer {
	if a, port := parseAddrPort(r.RemoteAddr); a.IsValid() {
		return Peer{Addr: a, Rewritten: !port}
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return Peer{Unix: ok && strings.HasPrefix(local.Network(), "unix")}
}

// PeerAddr is the peer that a connection names.
func PeerAddr(a net.Addr) Peer {
	switch a := a.(type) {
	case *net.TCPAddr: // without its text, which would be made for each request
		return Peer{Addr: canonical(a.AddrPort().Addr())}
	case nil:
		return Peer{}
	}
	return Peer{Addr: parseAddr(a.String()), Unix: strings.HasPrefix(a.Network(), "unix")}
}

// longestAddr is that of "[", an IPv6 address with its zone, "]:" and a port.
const longestAddr = 64

// parseAddr reads an address with or without brackets and port, in its one
// canonical form; an address that is none is not valid.
func parseAddr(s string) netip.Addr {
	a, _ := parseAddrPort(s)
	return a
}

// parseAddrPort reports as well whether there was a port.
func parseAddrPort(s string) (netip.Addr, bool) {
	if len(s) > longestAddr { // before an error would quote it
		return netip.Addr{}, false
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return canonical(ap.Addr()), true
	}
	if n := len(s); n > 2 && s[0] == '[' && s[n-1] == ']' {
		if a, err := netip.ParseAddr(s[1 : n-1]); err == nil && a.Is6() {
			return canonical(a), false
		}
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, false
	}
	return canonical(a), false
}

// canonical gives an address one form: mapped IPv4 is IPv4, decided by bits and not
// by how it was written, and a zone says nothing about the client. The
// unspecified address is nobody's.
func canonical(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}
