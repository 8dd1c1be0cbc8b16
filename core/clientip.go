package core

import (
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/clientip"
)

// ByIP is the address of the TCP peer. No header is read, because any client can write one. Behind a proxy, it is the
// proxy's address, and all its clients share one quota.
//
// IPv6 clients are distinguished by their /64, which is the smallest prefix that a subscriber has. IPv4-mapped
// addresses count as IPv4. A peer without an address, as on a Unix socket, is [ErrNoKey].
func ByIP() Key {
	return Key{&keySpec{
		name: "ByIP", classes: []keyClass{{kind: kindIP}},
		addrs:    true,
		noText:   true,
		byPrefix: true,
		read: func(r adapter.Request, p *prefixes) (identity, error) {
			peer := r.Peer()
			if peer.Rewritten {
				p.check.peerReplaced(r)
			}
			p.check.peerUsed(r)
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
