package core

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Peer is the other end of the connection that a request came over.
type Peer struct {
	Addr netip.Addr // not valid where there is none, as on a Unix socket
	Unix bool       // the listener is a Unix socket
}

// PeerOf is the peer of a net/http request. RemoteAddr may carry a port, as
// the server writes it, or be a bare address.
func PeerOf(r *http.Request) Peer {
	if a := parseAddr(r.RemoteAddr); a.IsValid() {
		return Peer{Addr: a}
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

// parseAddr reads an address with or without brackets and port, in its one
// canonical form; an address that is none is not valid.
func parseAddr(s string) netip.Addr {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return canonical(ap.Addr())
	}
	if n := len(s); n > 2 && s[0] == '[' && s[n-1] == ']' {
		if a, err := netip.ParseAddr(s[1 : n-1]); err == nil && a.Is6() {
			return canonical(a)
		}
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}
	}
	return canonical(a)
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
