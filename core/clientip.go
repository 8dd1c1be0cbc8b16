package core

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/sashlimit/sash/core/internal/clientip"
)

// ByIP is the address of the TCP peer. No header is read, because every client can write one. Behind a proxy that is
// the proxy's address, and all its clients share one quota.
//
// IPv6 clients are distinguished by their /64, which is the smallest prefix that a subscriber has. IPv4-mapped
// addresses count as IPv4. A peer without an address, as on a Unix socket, is [ErrNoKey].
func ByIP() Key {
	return Key{
		name: "ByIP", classes: []keyClass{{kind: kindIP}},
		addrs:  true,
		noText: true,
		read: func(r Request, p *prefixes) (identity, error) {
			peer := r.Peer()
			if peer.Rewritten {
				p.watch.replaced(r)
			}
			p.watch.look(r)
			a := clientip.Canonical(peer.Addr)
			if !a.IsValid() {
				return identity{}, ErrNoKey
			}
			return p.identity(a), nil
		},
		named: func(text string, p *prefixes) (identity, bool) {
			a := clientip.ParseAddr(text)
			if !a.IsValid() {
				return identity{}, false
			}
			return p.identity(a), true
		},
	}
}

// Peer is the other end of the connection that a request came over.
type Peer struct {
	Addr netip.Addr // not valid where there is none, as on a Unix socket
	Unix bool       // the listener is a Unix socket

	// Rewritten says that the address came without a port. Servers always give one, so other middleware has replaced it.
	Rewritten bool
}

// PeerOf is the peer of a net/http request. RemoteAddr may have a port, as the server writes it, or be a bare address.
func PeerOf(r *http.Request) Peer {
	if a, port := clientip.ParseAddrPort(r.RemoteAddr); a.IsValid() {
		return Peer{Addr: a, Rewritten: !port}
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return Peer{Unix: ok && strings.HasPrefix(local.Network(), "unix")}
}

// PeerAddr is the peer with the remote address of a connection.
func PeerAddr(a net.Addr) Peer {
	switch a := a.(type) {
	case *net.TCPAddr: // without its text, which would be allocated for each request
		return Peer{Addr: clientip.Canonical(a.AddrPort().Addr())}
	case nil:
		return Peer{}
	}
	return Peer{Addr: clientip.ParseAddr(a.String()), Unix: strings.HasPrefix(a.Network(), "unix")}
}
