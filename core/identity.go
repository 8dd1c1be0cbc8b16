package core

import (
	"net/netip"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/setup"
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
	check  *setup.Requests // of the limiter, or nil
	memo   *keyMemo        // of a request that may read a key more than once, or nil
}

func (p *prefixes) identity(a netip.Addr) identity {
	bits := p.v6
	if a.Is4() {
		bits = p.v4
	}
	prefix, _ := a.Prefix(bits) // no error, because New has checked the bits
	return identity{Kind: kindIP, Addr: prefix.Addr(), Bits: bits}
}

// readOnce is read, unless the request has read the key before.
func (k *keySpec) readOnce(r adapter.Request, p *prefixes) (identity, error) {
	if p.memo == nil {
		return k.read(r, p)
	}
	for i := range *p.memo {
		if known := &(*p.memo)[i]; known.key == k && (!k.byPrefix || known.by == p) {
			return known.id, known.err
		}
	}
	id, err := k.read(r, p)
	*p.memo = append(*p.memo, keyRead{k, p, id, err})
	return id, err
}

// keyMemo has the keys that a request has read. It is used again, and their texts may be in memory that a server uses
// again, so it is cleared after the request.
type keyMemo []keyRead

type keyRead struct {
	key *keySpec
	by  *prefixes
	id  identity
	err error
}

func (m *keyMemo) clear() {
	clear(*m)
	*m = (*m)[:0]
}
