package core_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

var errLookup = errors.New("the database is down")

type userKey struct{}

// as returns a request whose context names a user, as authenticating middleware leaves it.
func as(user string) adapter.Request {
	r := from("198.51.100.1:1")
	return web{r.WithContext(context.WithValue(r.Context(), userKey{}, user))}
}

// on returns what a limiter with these options does with a request: "forbidden", "uncounted" or "counted".
func on(t *testing.T, k core.Key, r adapter.Request, opts ...core.Option) (string, error) {
	t.Helper()
	l := newLimiterBy(t, core.PerMinute(9), k, opts...)
	d, err := l.Check(r)
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
		{"192.0.2.7",
			[]string{"192.0.2.7:1", "[::ffff:192.0.2.7]:1", "[::ffff:c000:207]:1"},
			[]string{"192.0.2.6:1", "192.0.2.8:1", "[2001:db8::192.0.2.7]:1"}},
		{"192.0.2.0/24",
			[]string{"192.0.2.0:1", "192.0.2.255:1", "[::ffff:192.0.2.9]:1"},
			[]string{"192.0.1.255:1", "192.0.3.0:1"}},
		{"192.0.2.77/24", []string{"192.0.2.1:1"}, []string{"192.0.3.77:1"}}, // the bits after the prefix are ignored
		{"192.0.2.7/32", []string{"192.0.2.7:1"}, []string{"192.0.2.6:1"}},
		{"::ffff:192.0.2.7", []string{"192.0.2.7:1", "[::ffff:192.0.2.7]:1"}, []string{"192.0.2.6:1"}},
		{"::ffff:192.0.2.0/120",
			[]string{"192.0.2.7:1", "[::ffff:192.0.2.7]:1"},
			[]string{"192.0.3.7:1", "[2001:db8::1]:1"}},
		{"::ffff:0:0/97", []string{"127.0.0.1:1"}, []string{"128.0.0.1:1", "[::1]:1"}},
		// An IPv6 entry matches one address, although the addresses of its /64 share a quota.
		{"2001:db8::7",
			[]string{"[2001:db8::7]:1", "[2001:db8:0:0:0:0:0:7]:1", "[2001:db8::7%eth0]:1"},
			[]string{"[2001:db8::8]:1", "[2001:db8::]:1", "[2001:db8::7:0]:1", "0.0.0.7:1"}},
		{"2001:db8::/127", []string{"[2001:db8::]:1", "[2001:db8::1]:1"}, []string{"[2001:db8::2]:1"}},
		{"2001:db8::/32", []string{"[2001:db8:ffff::1]:1"}, []string{"[2001:db9::]:1", "32.1.13.184:1"}},
		{"1::/1", []string{"[7fff::1]:1"}, []string{"[8000::]:1", "1.2.3.4:1"}},
	} {
		prefixes := [][]core.Option{
			nil,
			{core.WithIPv4Prefix(8), core.WithIPv6Prefix(32)},
			{core.WithIPv6Prefix(128)},
		}
		for want, remotes := range map[bool][]string{true: c.in, false: c.out} {
			for _, remote := range remotes {
				for _, bits := range prefixes {
					deny := core.WithDenyList(core.ByIP(), "203.0.113.1", c.entry)
					denied, err := on(t, core.ByIP(), from(remote), append(bits, deny)...)
					if err != nil || (denied == "forbidden") != want {
						t.Errorf("%s on a deny list with %s: %s, %v", remote, c.entry, denied, err)
					}
					allow := core.WithAllowList(core.ByIP(), c.entry, "203.0.113.1")
					passed, err := on(t, core.ByIP(), from(remote), append(bits, allow)...)
					if err != nil || (passed == "uncounted") != want || passed == "forbidden" {
						t.Errorf("%s on an allow list with %s: %s, %v", remote, c.entry, passed, err)
					}
				}
			}
		}
	}
}

// An entry is compared as an address where the key yields an address, and as text where it yields text.
func TestListsByKey(t *testing.T) {
	id := core.ByHeader("X-API-Key", core.Unverified)
	verified := core.ByHeader("X-API-Key", func(_ context.Context, key string) (string, error) {
		return "customer of " + key, nil
	})
	host := core.By(func(r *http.Request) (string, error) { return r.Host, nil })
	either := core.First(id, core.ByIP())
	user := core.First(core.ByValue(userKey{}), core.ByIP())
	nested := core.First(core.First(core.ByValue(userKey{})), core.First(core.ByIP()))
	proxied := core.ByForwardedIP("10.0.0.0/8")
	cloudflare := core.ByIPHeader("CF-Connecting-IP", "10.0.0.0/8")
	apiKey := func(addr, key string) adapter.Request { return from(addr, "X-API-Key", key) }
	forwarded := func(addr, list string) adapter.Request { return from(addr, "X-Forwarded-For", list) }
	const passes, counts, refused = "uncounted", "counted", "forbidden"
	for _, c := range []struct {
		desc string
		list core.Option
		r    adapter.Request
		want string
	}{
		{"a header", core.WithAllowList(id, "k1", "k2"), apiKey("192.0.2.1:1", "k2"), passes},
		{"another value", core.WithAllowList(id, "k1"), apiKey("192.0.2.1:1", "k"), counts},
		{"an upper-case entry", core.WithAllowList(id, "K1"), apiKey("192.0.2.1:1", "K1"), passes},
		{"case counts", core.WithAllowList(id, "k1"), apiKey("192.0.2.1:1", "K1"), counts},
		{"no header", core.WithAllowList(id, "k1"), from("192.0.2.1:1"), counts},
		{"an empty header", core.WithDenyList(id, "k1"), apiKey("192.0.2.1:1", ""), counts},
		{"the header twice", core.WithDenyList(id, "k1"),
			from("192.0.2.1:1", "X-API-Key", "k1", "X-API-Key", "k1"), counts},
		{"what verify returns", core.WithDenyList(verified, "customer of k1"), apiKey("192.0.2.1:1", "k1"), refused},
		{"and not the header itself", core.WithDenyList(verified, "k1"), apiKey("192.0.2.1:1", "k1"), counts},
		{"a text like an address", core.WithDenyList(id, "192.0.2.7"), apiKey("192.0.2.1:1", "192.0.2.7"), refused},
		{"a text within a prefix", core.WithDenyList(id, "192.0.2.0/24"), apiKey("192.0.2.1:1", "192.0.2.7"), counts},
		{"an address and a list of texts", core.WithDenyList(id, "192.0.2.7"), from("192.0.2.7:1"), counts},
		{"a function", core.WithDenyList(host, "example.com"), from("192.0.2.1:1"), refused},
		{"no address", core.WithDenyList(core.ByIP(), "192.0.2.1"), from("@"), counts},

		{"first, by text", core.WithAllowList(either, "k1", "192.0.2.0/24"), apiKey("198.51.100.1:1", "k1"), passes},
		{"first, by address", core.WithAllowList(either, "k1", "192.0.2.0/24"), from("192.0.2.9:1"), passes},
		{"first, by neither", core.WithAllowList(either, "k1", "192.0.2.0/24"), apiKey("192.0.2.9:1", "k2"), counts},
		{"first, a value", core.WithDenyList(user, "mallory"), as("mallory"), refused},
		{"first of first", core.WithDenyList(nested, "mallory", "192.0.2.9"), from("192.0.2.9:1"), refused},
		// An allowed address says nothing about a user whose name reads like it.
		{"first, a text like an address", core.WithAllowList(either, "192.0.2.7"),
			apiKey("198.51.100.1:1", "192.0.2.7"), counts},
		{"first, a text like a prefix", core.WithAllowList(either, "10.0.0.0/8"),
			apiKey("198.51.100.1:1", "10.0.0.0/8"), counts},

		{"forwarded", core.WithDenyList(proxied, "192.0.2.7"), forwarded("10.0.0.1:1", "192.0.2.7"), refused},
		{"forwarded by an untrusted peer", core.WithDenyList(proxied, "192.0.2.7"),
			forwarded("198.51.100.1:1", "192.0.2.7"), counts},
		{"forwarded, made up", core.WithAllowList(proxied, "192.0.2.7"),
			forwarded("10.0.0.1:1", "192.0.2.7, 198.51.100.1"), counts},
		{"the proxy itself", core.WithAllowList(proxied, "10.0.0.0/8"), from("10.0.0.1:1"), passes},
		// The client's address is unknown then, and must not be taken for the proxy's.
		{"unidentified", core.WithAllowList(proxied, "10.0.0.0/8"), forwarded("10.0.0.1:1", "unknown"), counts},
		{"unidentified by its header", core.WithAllowList(cloudflare, "10.0.0.0/8"),
			from("10.0.0.1:1", "CF-Connecting-IP", "unknown"), counts},
	} {
		if got, err := on(t, core.Global(), c.r, c.list); got != c.want || err != nil {
			t.Errorf("%s: %s, %v; want %s", c.desc, got, err, c.want)
		}
	}
}

// A deny list takes precedence over an allow list in any order, and an error of one is not hidden by the other.
func TestListsTogether(t *testing.T) {
	id := core.ByHeader("X-API-Key", core.Unverified)
	allow := core.WithAllowList(core.ByIP(), "192.0.2.0/24")
	allowKey := core.WithAllowList(id, "monitor")
	deny := core.WithDenyList(core.ByIP(), "192.0.2.7", "198.51.100.0/24")
	denyKey := core.WithDenyList(id, "mallory")
	failing := core.WithDenyList(core.By(func(context.Context) (string, error) { return "", errLookup }), "k")
	missing := core.WithDenyList(core.By(func(context.Context) (string, error) {
		return "", fmt.Errorf("nobody: %w", core.ErrNoKey)
	}), "k")
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
		{"on the second allow list", from("203.0.113.1:1", "X-API-Key", "monitor"),
			[]core.Option{allow, allowKey, deny}, "uncounted"},
		{"on both allow lists", from("192.0.2.8:1", "X-API-Key", "monitor"),
			[]core.Option{allow, allowKey, deny}, "uncounted"},
		{"on the second deny list", from("192.0.2.8:1", "X-API-Key", "mallory"),
			[]core.Option{allow, deny, denyKey}, "forbidden"},
		{"denied by address, allowed by key", from("198.51.100.1:1", "X-API-Key", "monitor"),
			[]core.Option{allowKey, deny}, "forbidden"},
		{"a deny list whose key fails", from("192.0.2.8:1"), []core.Option{allow, failing}, ""},
		{"a deny list without a key", from("192.0.2.8:1"), []core.Option{allow, missing}, "uncounted"},
		{"on no list, one without a key", from("203.0.113.1:1"), []core.Option{allow, missing}, "counted"},
	} {
		got, err := on(t, core.Global(), c.r, c.opts...)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: %s, %v; want %s", c.desc, got, err, c.want)
		}
	}
}
