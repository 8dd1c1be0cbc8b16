package core_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/event"
)

var errLookup = errors.New("the database is down")

type userKey struct{}

// as is a request in which earlier middleware has left a user.
func as(user string) adapter.Request {
	r := from("198.51.100.1:1")
	return web{r.WithContext(context.WithValue(r.Context(), userKey{}, user))}
}

// on is what a limiter with these options makes of a request: "forbidden", "uncounted" or "counted".
func on(t *testing.T, k core.Key, r adapter.Request, opts ...core.Option) (string, error) {
	t.Helper()
	l, err := core.New(core.PerMinute(9), k, opts...)
	if err != nil {
		t.Fatal(err)
	}
	d, err := l.Check(r, nil)
	switch {
	case errors.Is(err, core.ErrForbidden):
		return "forbidden", nil
	case err != nil:
		return "", err
	case d.Policy == "":
		return "uncounted", nil
	}
	return "counted", nil
}

func TestListsOfAddresses(t *testing.T) {
	for _, c := range []struct {
		entry string
		in    []string
		out   []string
	}{
		{"192.0.2.7", []string{"192.0.2.7:1", "[::ffff:192.0.2.7]:1", "[::ffff:c000:207]:1"}, []string{"192.0.2.6:1", "192.0.2.8:1", "[2001:db8::192.0.2.7]:1"}},
		{"192.0.2.0/24", []string{"192.0.2.0:1", "192.0.2.255:1", "[::ffff:192.0.2.9]:1"}, []string{"192.0.1.255:1", "192.0.3.0:1"}},
		{"192.0.2.77/24", []string{"192.0.2.1:1"}, []string{"192.0.3.77:1"}}, // the bits beyond it say nothing
		{"192.0.2.7/32", []string{"192.0.2.7:1"}, []string{"192.0.2.6:1"}},
		{"::ffff:192.0.2.7", []string{"192.0.2.7:1", "[::ffff:192.0.2.7]:1"}, []string{"192.0.2.6:1"}},
		{"::ffff:192.0.2.0/120", []string{"192.0.2.7:1", "[::ffff:192.0.2.7]:1"}, []string{"192.0.3.7:1", "[2001:db8::1]:1"}},
		{"::ffff:0:0/97", []string{"127.0.0.1:1"}, []string{"128.0.0.1:1", "[::1]:1"}},
		// Within one /64, and so within one quota, an address is still told from its neighbours.
		{"2001:db8::7", []string{"[2001:db8::7]:1", "[2001:db8:0:0:0:0:0:7]:1", "[2001:db8::7%eth0]:1"}, []string{"[2001:db8::8]:1", "[2001:db8::]:1", "[2001:db8::7:0]:1", "0.0.0.7:1"}},
		{"2001:db8::/127", []string{"[2001:db8::]:1", "[2001:db8::1]:1"}, []string{"[2001:db8::2]:1"}},
		{"2001:db8::/32", []string{"[2001:db8:ffff::1]:1"}, []string{"[2001:db9::]:1", "32.1.13.184:1"}},
		{"1::/1", []string{"[7fff::1]:1"}, []string{"[8000::]:1", "1.2.3.4:1"}},
	} {
		for want, remotes := range map[bool][]string{true: c.in, false: c.out} {
			for _, remote := range remotes {
				for _, bits := range [][]core.Option{nil, {core.WithIPv4Prefix(8), core.WithIPv6Prefix(32)}, {core.WithIPv6Prefix(128)}} {
					denied, err := on(t, core.ByIP(), from(remote), append(bits, core.WithDenyList(core.ByIP(), "203.0.113.1", c.entry))...)
					if err != nil || (denied == "forbidden") != want {
						t.Errorf("%s on a deny list with %s: %s, %v", remote, c.entry, denied, err)
					}
					passed, err := on(t, core.ByIP(), from(remote), append(bits, core.WithAllowList(core.ByIP(), c.entry, "203.0.113.1"))...)
					if err != nil || (passed == "uncounted") != want || passed == "forbidden" {
						t.Errorf("%s on an allow list with %s: %s, %v", remote, c.entry, passed, err)
					}
				}
			}
		}
	}
}

// An entry means an address where the key finds addresses, and text where it finds text.
func TestListsByKey(t *testing.T) {
	id := core.ByHeader("X-API-Key", core.Unverified)
	verified := core.ByHeader("X-API-Key", func(_ context.Context, key string) (string, error) { return "customer of " + key, nil })
	either := core.First(id, core.ByIP())
	proxied := core.ByForwardedIP("10.0.0.0/8")
	const passes, counts, refused = "uncounted", "counted", "forbidden"
	for _, c := range []struct {
		desc string
		list core.Option
		r    adapter.Request
		want string
	}{
		{"a header", core.WithAllowList(id, "k1", "k2"), from("192.0.2.1:1", "X-API-Key", "k2"), passes},
		{"another value", core.WithAllowList(id, "k1"), from("192.0.2.1:1", "X-API-Key", "k"), counts},
		{"an upper-case entry", core.WithAllowList(id, "K1"), from("192.0.2.1:1", "X-API-Key", "K1"), passes},
		{"case counts", core.WithAllowList(id, "k1"), from("192.0.2.1:1", "X-API-Key", "K1"), counts},
		{"no header", core.WithAllowList(id, "k1"), from("192.0.2.1:1"), counts},
		{"an empty header", core.WithDenyList(id, "k1"), from("192.0.2.1:1", "X-API-Key", ""), counts},
		{"the header twice", core.WithDenyList(id, "k1"), from("192.0.2.1:1", "X-API-Key", "k1", "X-API-Key", "k1"), counts},
		{"what verify makes of it", core.WithDenyList(verified, "customer of k1"), from("192.0.2.1:1", "X-API-Key", "k1"), refused},
		{"and not the header itself", core.WithDenyList(verified, "k1"), from("192.0.2.1:1", "X-API-Key", "k1"), counts},
		{"a text like an address", core.WithDenyList(id, "192.0.2.7"), from("192.0.2.1:1", "X-API-Key", "192.0.2.7"), refused},
		{"a text within a prefix", core.WithDenyList(id, "192.0.2.0/24"), from("192.0.2.1:1", "X-API-Key", "192.0.2.7"), counts},
		{"an address and a list of texts", core.WithDenyList(id, "192.0.2.7"), from("192.0.2.7:1"), counts},
		{"a function", core.WithDenyList(core.By(func(r *http.Request) (string, error) { return r.Host, nil }), "example.com"), from("192.0.2.1:1"), refused},
		{"no address", core.WithDenyList(core.ByIP(), "192.0.2.1"), from("@"), counts},

		{"first, by text", core.WithAllowList(either, "k1", "192.0.2.0/24"), from("198.51.100.1:1", "X-API-Key", "k1"), passes},
		{"first, by address", core.WithAllowList(either, "k1", "192.0.2.0/24"), from("192.0.2.9:1"), passes},
		{"first, by neither", core.WithAllowList(either, "k1", "192.0.2.0/24"), from("192.0.2.9:1", "X-API-Key", "k2"), counts},
		{"first, a value", core.WithDenyList(core.First(core.ByValue(userKey{}), core.ByIP()), "mallory"), as("mallory"), refused},
		{"first of first", core.WithDenyList(core.First(core.First(core.ByValue(userKey{})), core.First(core.ByIP())), "mallory", "192.0.2.9"), from("192.0.2.9:1"), refused},
		// A user who is called like an address has nothing to do with it.
		{"first, a text like an address", core.WithAllowList(either, "192.0.2.7"), from("198.51.100.1:1", "X-API-Key", "192.0.2.7"), counts},
		{"first, a text like a prefix", core.WithAllowList(either, "10.0.0.0/8"), from("198.51.100.1:1", "X-API-Key", "10.0.0.0/8"), counts},

		{"forwarded", core.WithDenyList(proxied, "192.0.2.7"), from("10.0.0.1:1", "X-Forwarded-For", "192.0.2.7"), refused},
		{"forwarded by nobody known", core.WithDenyList(proxied, "192.0.2.7"), from("198.51.100.1:1", "X-Forwarded-For", "192.0.2.7"), counts},
		{"forwarded, made up", core.WithAllowList(proxied, "192.0.2.7"), from("10.0.0.1:1", "X-Forwarded-For", "192.0.2.7, 198.51.100.1"), counts},
		{"the proxy itself", core.WithAllowList(proxied, "10.0.0.0/8"), from("10.0.0.1:1"), passes},
		// The client is not known then, and surely is not the proxy.
		{"unidentified", core.WithAllowList(proxied, "10.0.0.0/8"), from("10.0.0.1:1", "X-Forwarded-For", "unknown"), counts},
		{"unidentified by its header", core.WithAllowList(core.ByIPHeader("CF-Connecting-IP", "10.0.0.0/8"), "10.0.0.0/8"), from("10.0.0.1:1", "CF-Connecting-IP", "unknown"), counts},
	} {
		if got, err := on(t, core.Global(), c.r, c.list); got != c.want || err != nil {
			t.Errorf("%s: %s, %v; want %s", c.desc, got, err, c.want)
		}
	}
}

// Deny beats allow, wherever they stand, and no answer of the one hides an error of the other.
func TestListsTogether(t *testing.T) {
	id := core.ByHeader("X-API-Key", core.Unverified)
	allow := core.WithAllowList(core.ByIP(), "192.0.2.0/24")
	allowKey := core.WithAllowList(id, "monitor")
	deny := core.WithDenyList(core.ByIP(), "192.0.2.7", "198.51.100.0/24")
	denyKey := core.WithDenyList(id, "mallory")
	failing := core.WithDenyList(core.By(func(context.Context) (string, error) { return "", errLookup }), "k")
	missing := core.WithDenyList(core.By(func(context.Context) (string, error) { return "", fmt.Errorf("nobody: %w", core.ErrNoKey) }), "k")
	for _, c := range []struct {
		desc string
		r    adapter.Request
		opts []core.Option
		want string
	}{
		{"on none", from("203.0.113.1:1"), []core.Option{allow, deny, allowKey, denyKey}, "counted"},
		{"on both, allowed first", from("192.0.2.7:1"), []core.Option{allow, deny}, "forbidden"},
		{"on both, denied first", from("192.0.2.7:1"), []core.Option{deny, allow}, "forbidden"},
		{"allowed alone", from("192.0.2.8:1"), []core.Option{deny, allow}, "uncounted"},
		{"on the second allow list", from("203.0.113.1:1", "X-API-Key", "monitor"), []core.Option{allow, allowKey, deny}, "uncounted"},
		{"on both allow lists", from("192.0.2.8:1", "X-API-Key", "monitor"), []core.Option{allow, allowKey, deny}, "uncounted"},
		{"on the second deny list", from("192.0.2.8:1", "X-API-Key", "mallory"), []core.Option{allow, deny, denyKey}, "forbidden"},
		{"denied by address, allowed by key", from("198.51.100.1:1", "X-API-Key", "monitor"), []core.Option{allowKey, deny}, "forbidden"},
		{"a deny list that cannot tell", from("192.0.2.8:1"), []core.Option{allow, failing}, ""},
		{"a deny list that finds nothing", from("192.0.2.8:1"), []core.Option{allow, missing}, "uncounted"},
		{"nor on any other", from("203.0.113.1:1"), []core.Option{allow, missing}, "counted"},
	} {
		got, err := on(t, core.Global(), c.r, c.opts...)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: %s, %v; want %s", c.desc, got, err, c.want)
		}
	}
}

// What goes wrong with a list is not the store's fault, and no pass.
func TestListErrors(t *testing.T) {
	for _, c := range []struct {
		desc   string
		f      func(context.Context) (string, error)
		status int
		is     error

		outcome event.Outcome
	}{
		{"on the list", func(context.Context) (string, error) { return "k", nil }, 403, core.ErrForbidden, event.Forbidden},
		{"an error", func(context.Context) (string, error) { return "", errLookup }, 500, errLookup, event.Failed},
		{"a panic", func(context.Context) (string, error) { panic(errLookup) }, 500, errLookup, event.Failed},
	} {
		var events []core.Event
		store := new(coretest.FakeStore)
		l := newLimiter(t, core.PerMinute(1), core.WithStore(store), core.WithDenyList(core.By(c.f), "k"),
			core.WithObserver(func(_ context.Context, e core.Event) { events = append(events, e) }))
		for range 3 { // an exchange that ended in an error has ended
			d, err := l.Check(from("192.0.2.1:1"), t)
			if p := core.ProblemOf(err); d.Allowed || !errors.Is(err, c.is) || p.Status != c.status {
				t.Errorf("%s: %+v, %v: status %d, want %d", c.desc, d, err, p.Status, c.status)
			}
		}
		if len(events) != 3 || !errors.Is(events[0].Err, c.is) || events[0].Outcome != c.outcome || store.Takes() != 0 {
			t.Errorf("%s: observed %+v, and %d questions to the store", c.desc, events, store.Takes())
		}
	}
}

func TestListObserved(t *testing.T) {
	var seen core.Event
	store := new(coretest.FakeStore)
	l := newLimiter(t, core.PerMinute(1), core.WithStore(store), core.WithAllowList(core.ByIP(), "192.0.2.1"),
		core.WithSkip(func(context.Context) bool { t.Error("skip was asked about who is on a list"); return false }),
		core.WithObserver(func(_ context.Context, e core.Event) { seen = e }))
	for range 3 {
		d, err := l.Check(from("192.0.2.1:1"), nil)
		if err != nil || !d.Allowed || seen.Outcome != event.Listed || !seen.Decision.Allowed || store.Takes() != 0 {
			t.Errorf("%+v, %v, observed %+v; %d questions to the store", d, err, seen, store.Takes())
		}
		if err := d.Undo(t.Context()); err != nil { // which took nothing
			t.Error(err)
		}
	}
}

// Each mistake names the option, what it was given, and what would be right.
func TestListConfig(t *testing.T) {
	ip := core.ByIP()
	const remedy = `"192.0.2.0/24"`
	for _, c := range []struct {
		desc string
		opt  core.Option
		want []string
	}{
		{"no key", core.WithDenyList(core.Key{}, "a"), []string{"WithDenyList(no key)", "core.ByIP()"}},
		{"no entries", core.WithAllowList(ip), []string{"WithAllowList(no entries)", "name at least one, or leave the option out"}},
		{"no entries to deny", core.WithDenyList(core.ByHeader("X-API-Key", core.Unverified)), []string{"WithDenyList(no entries)", "leave the option out"}},
		{"no address", core.WithAllowList(ip, "192.0.2.1", "monitor"), []string{`WithAllowList("monitor")`, remedy}},
		{"no address of First", core.WithAllowList(core.First(ip, core.ByForwardedIP("10.0.0.0/8")), "monitor"), []string{`WithAllowList("monitor")`, remedy}},
		{"no address of a proxy", core.WithDenyList(core.ByForwardedIP("10.0.0.0/8"), "unix"), []string{`WithDenyList("unix")`, remedy}},
		{"an empty address", core.WithAllowList(ip, ""), []string{`WithAllowList("")`, remedy}},
		{"a range", core.WithAllowList(ip, "192.0.2.1-9"), []string{`WithAllowList("192.0.2.1-9")`, remedy}},
		{"a port", core.WithAllowList(ip, "192.0.2.1:80"), []string{`WithAllowList("192.0.2.1:80")`, remedy}},
		{"a zone", core.WithAllowList(ip, "fe80::1%eth0"), []string{`WithAllowList("fe80::1%eth0")`, remedy}},
		{"too many bits", core.WithAllowList(ip, "192.0.2.0/33"), []string{`WithAllowList("192.0.2.0/33")`, remedy}},
		{"everybody", core.WithDenyList(ip, "0.0.0.0/0"), []string{`WithDenyList("0.0.0.0/0")`, "everybody", remedy}},
		{"everybody on IPv6", core.WithAllowList(ip, "::/0"), []string{`WithAllowList("::/0")`, "everybody", remedy}},
		{"everybody, mapped", core.WithAllowList(ip, "::ffff:0:0/96"), []string{`WithAllowList("::ffff:0:0/96")`, "everybody", remedy}},
		{"an empty identity", core.WithAllowList(core.ByHeader("X-API-Key", core.Unverified), "a", ""), []string{`WithAllowList("")`, "is the variable it comes from set?"}},
		{"an empty identity or address", core.WithAllowList(core.First(core.ByValue(userKey{}), ip), ""), []string{`WithAllowList("")`, "is the variable it comes from set?"}},
		{"a wrong key", core.WithAllowList(core.ByHeader("a b", core.Unverified), "a"), []string{`ByHeader("a b")`, "letters, digits and '-'"}},
		{"a wrong key within", core.WithDenyList(core.First(core.By[*http.Request](nil), ip), "192.0.2.1"), []string{"By(nil)", "give it a function"}},
	} {
		l, err := core.New(core.PerMinute(1), ip, c.opt)
		var config *core.ConfigError
		if l != nil || !errors.As(err, &config) {
			t.Errorf("%s: %v, %v", c.desc, l, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %s is not in\n%v", c.desc, want, err)
			}
		}
	}
	_, err := core.New(core.PerMinute(1), ip, core.WithAllowList(ip, "one", "two"), core.WithDenyList(ip, "three"))
	for _, want := range []string{`WithAllowList("one")`, `WithAllowList("two")`, `WithDenyList("three")`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not in\n%v", want, err)
		}
	}
	type foreign struct{}
	strange := core.WithDenyList(core.By(func(*foreign) (string, error) { return "", nil }), "a")
	if _, err := core.NewFor[*http.Request](core.PerMinute(1), ip, strange); err == nil || !strings.Contains(err.Error(), "By(func(*core_test.foreign))") {
		t.Errorf("a list's key for another framework: %v", err)
	}
}
