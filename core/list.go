package core

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/clientip"
)

// WithAllowList lets requests pass uncounted if the list names their client. If k finds addresses, an entry is an
// address or a prefix, such as "10.0.0.0/8", regardless of [WithIPv4Prefix] and [WithIPv6Prefix]. Otherwise an entry is
// an identity as k returns it. k may differ from the key of the quota.
//
//	core.WithAllowList(core.ByIP(), "192.0.2.7", "2001:db8::/32")
//
// A request for which k returns [ErrNoKey] is on no list. Lists are checked before anything else. A client on an allow
// list and on a deny list is denied.
func WithAllowList(k Key, entries ...string) Option { return onList("WithAllowList", k, entries, true) }

// WithDenyList refuses requests (403, [ErrForbidden]) if the list names their client; see [WithAllowList].
func WithDenyList(k Key, entries ...string) Option { return onList("WithDenyList", k, entries, false) }

// list is an allow list or a deny list.
type list struct {
	key      Key
	passes   bool
	prefixes []netip.Prefix
	texts    map[string]bool
}

func onList(option string, k Key, entries []string, passes bool) Option {
	return func(c *config) {
		if k.read == nil && k.fault == nil {
			c.fault(option, "no key", "say what the entries are, such as core.ByIP()")
			return
		}
		c.faults = append(c.faults, k.fault)
		c.callbackTypes = append(c.callbackTypes, k.callbackTypes...)
		if len(entries) == 0 {
			c.fault(option, "no entries", "name at least one, or leave the option out")
		}
		l := &list{key: k, passes: passes, texts: make(map[string]bool)}
		for _, e := range entries {
			p, err := clientip.ParsePrefix(e)
			switch {
			case k.addrs && err == nil:
				l.prefixes = append(l.prefixes, p)
			case k.noText:
				c.fault(option, strconv.Quote(e), "this key finds addresses: name one, or a prefix such as "+
					"\"192.0.2.0/24\" that is not everybody")
			case e == "":
				c.fault(option, `""`, "nobody has an empty identity: is the variable it comes from set?")
			default:
				l.texts[strings.Clone(e)] = true
			}
		}
		c.lists = append(c.lists, l)
	}
}

// wholeAddress are prefixes that distinguish all addresses.
var wholeAddress = prefixes{v4: 32, v6: 128}

// listed reports whether an allow list names the client. If a deny list does, the error is ErrForbidden.
func (l *Limiter) listed(r adapter.Request) (passes bool, err error) {
	for i := range l.lists {
		if passes && l.lists[i].passes {
			continue
		}
		p := wholeAddress
		id, err := l.lists[i].key.read(r, &p)
		if errors.Is(err, ErrNoKey) {
			continue
		}
		if err != nil {
			return false, &listError{err}
		}
		if !l.lists[i].contains(&id) {
			continue
		}
		if !l.lists[i].passes {
			return false, ErrForbidden
		}
		passes = true
	}
	return passes, nil
}

// listError is an error of a list's key, as opposed to the limiter's key.
type listError struct{ error }

func (e *listError) Error() string { return "sash: the key of a list: " + e.error.Error() }

func (e *listError) Unwrap() error { return e.error }

func (l *list) contains(id *identity) bool {
	if id.Kind == kindUnidentified { // the address is that of a proxy which did not report the client
		return false
	}
	if !id.Addr.IsValid() {
		return l.texts[id.Text]
	}
	for _, p := range l.prefixes {
		if p.Contains(id.Addr) {
			return true
		}
	}
	return false
}
