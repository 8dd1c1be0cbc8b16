package keys

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/clientip"
)

// List is an allow list or a deny list.
type List struct {
	Key    *Spec
	Passes bool // of an allow list

	prefixes []netip.Prefix
	texts    map[string]bool
}

// NewList makes a list for the option of that name. The mistakes are reported as those of the option.
func NewList(option string, k *Spec, entries []string, passes bool) (*List, error) {
	if k == nil {
		return nil, configError(option, "no key", "a list needs a key",
			"pass the key that finds them, such as core.ByIP()")
	}
	faults := []error{k.Fault}
	add := func(value, problem, remedy string) {
		faults = append(faults, configError(option, value, problem, remedy))
	}
	if len(entries) == 0 {
		add("no entries", "the list is empty", "name at least one client, or leave the option out")
	}
	addresses := k.Finds(kindIP)
	texts := slices.ContainsFunc(k.Kinds, func(kind string) bool { return kind != kindIP && kind != kindUnidentified })
	l := &List{Key: k, Passes: passes, texts: make(map[string]bool)}
	for _, e := range entries {
		p, err := clientip.ParsePrefix(e)
		switch {
		case k.MayFind(kindIP) && err == nil:
			if l.prefixes = append(l.prefixes, p); !addresses {
				l.texts[strings.Clone(e)] = true
			}
		case addresses && !texts:
			add(strconv.Quote(e), "the key finds addresses, but this is not one, or it is every address",
				`use an address, or a prefix such as "192.0.2.0/24"`)
		case e == "":
			add(`""`, "no client has an empty identity", "remove it; is the variable it comes from set?")
		default:
			l.texts[strings.Clone(e)] = true
		}
	}
	return l, errors.Join(faults...)
}

// Names reports whether the list names the client of a request. One that is nil names nobody. p is [Full], or the same
// of a request that remembers its keys.
func (l *List) Names(r adapter.Request, p *Prefixes) (bool, error) {
	if l == nil {
		return false, nil
	}
	id, err := l.Key.ReadOnce(r, p)
	switch {
	case errors.Is(err, ErrNoKey):
		return false, nil
	case err != nil:
		return false, err
	case id.Kind == kindUnidentified: // the address is that of a proxy which did not report the client
		return false, nil
	case !id.Addr.IsValid():
		return l.texts[id.Text], nil
	}
	return slices.ContainsFunc(l.prefixes, func(p netip.Prefix) bool { return p.Contains(id.Addr) }), nil
}
