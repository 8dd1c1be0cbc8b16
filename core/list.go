package core

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/clientip"
	"github.com/sashlimit/sash/core/internal/setup"
)

// list is an allow list or a deny list.
type list struct {
	key      Key
	passes   bool
	prefixes []netip.Prefix
	texts    map[string]bool
}

// newList makes a list for the option of that name. The mistakes are reported as those of the option.
func newList(option string, k Key, entries []string, passes bool) (*list, error) {
	if k.keySpec == nil {
		return nil, configError(option, "no key", "a list needs a key",
			"pass the key that finds them, such as core.ByIP()")
	}
	faults := []error{k.fault}
	add := func(value, problem, remedy string) {
		faults = append(faults, configError(option, value, problem, remedy))
	}
	if len(entries) == 0 {
		add("no entries", "the list is empty", "name at least one client, or leave the option out")
	}
	addresses := slices.ContainsFunc(k.classes, func(c setup.KeyClass) bool { return c.Address })
	texts := slices.ContainsFunc(k.classes, func(c setup.KeyClass) bool { return !c.Address })
	l := &list{key: k, passes: passes, texts: make(map[string]bool)}
	for _, e := range entries {
		p, err := clientip.ParsePrefix(e)
		switch {
		case addresses && err == nil:
			l.prefixes = append(l.prefixes, p)
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

// fullAddress are prefixes that distinguish all addresses.
var fullAddress = prefixes{v4: 32, v6: 128}

// listed reports whether an allow list names the client. If a deny list does, the error is ErrForbidden. p is
// fullAddress, or the same of a request that remembers its keys.
func listed(lists []*list, r adapter.Request, p *prefixes) (passes bool, err error) {
	for _, l := range lists {
		if passes && l.passes {
			continue
		}
		found, err := l.names(r, p)
		if err != nil {
			return false, err
		}
		if found && !l.passes {
			return false, ErrForbidden
		}
		passes = passes || found
	}
	return passes, nil
}

// names reports whether the list names the client of a request. p is as in listed.
func (l *list) names(r adapter.Request, p *prefixes) (bool, error) {
	id, err := l.key.readOnce(r, p)
	switch {
	case errors.Is(err, ErrNoKey):
		return false, nil
	case err != nil:
		return false, &listError{err}
	}
	return l.contains(&id), nil
}

func (l *list) contains(id *identity) bool {
	if id.Kind == kindUnidentified { // the address is that of a proxy which did not report the client
		return false
	}
	if !id.Addr.IsValid() {
		return l.texts[id.Text]
	}
	return slices.ContainsFunc(l.prefixes, func(p netip.Prefix) bool { return p.Contains(id.Addr) })
}
