package core

import (
	"net/netip"

	"github.com/sashlimit/sash/core/store"
)

// identity tells whose quota a request draws from.
type identity = store.Identity

const (
	kindIP           = "ip"
	kindUnidentified = "ip-unidentified"
)

const (
	kindBy  = "by"  // of the texts that a user's function returns
	kindAll = "all" // of Global
)

// everybody is what Global finds.
var everybody = identity{Kind: kindAll, Text: "all"}

var ownKinds = []string{kindAll, kindBy, "hdr", "ip", "join"}

func textIdentity(text string, err error) (identity, error) {
	if err != nil {
		return identity{}, err
	}
	if text == "" {
		return identity{}, ErrNoKey
	}
	return identity{Kind: kindBy, Text: text}, nil
}

// prefixes are the lengths, in bits, of the prefixes by which clients are distinguished.
type prefixes struct {
	v4, v6 int
	check  *setupCheck // of the limiter, or nil
	read   *keysRead   // by a request whose limits are chosen by rules, or nil
}

func (p *prefixes) identity(a netip.Addr) identity {
	bits := p.v6
	if a.Is4() {
		bits = p.v4
	}
	prefix, _ := a.Prefix(bits) // no error, because New has checked the bits
	return identity{Kind: kindIP, Addr: prefix.Addr(), Bits: bits}
}
