package core_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
)

// warned is what three rounds of requests make a limiter log.
func warned(t *testing.T, k core.Key, reqs ...web) string {
	t.Helper()
	return logged(t, func() {
		l := newLimiterBy(t, core.PerMinute(1000), k)
		for range 3 {
			for _, r := range reqs {
				if _, err := l.Check(r); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// A trusted proxy that sends no list leaves the header to its clients.
func TestWarnsOfProxyThatSendsNothing(t *testing.T) {
	bare, forwarded := from("10.0.0.1:1"), from("10.0.0.1:1", "X-Forwarded-For", "198.51.100.7")
	const nginx = "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"
	for _, c := range []struct {
		desc string
		got  string
		want []string
	}{
		{"none", warned(t, core.ByForwardedIP("10.0.0.0/8"), forwarded, bare),
			[]string{"a trusted proxy sends no X-Forwarded-For", nginx, "health checks"}},
		{"blank", warned(t, core.ByForwardedIP("10.0.0.0/8"), from("10.0.0.1:1", "X-Forwarded-For", " ")),
			[]string{"a trusted proxy sends no X-Forwarded-For"}},
		{"of another header", warned(t, core.ByForwarded("10.0.0.0/8"), forwarded),
			[]string{"a trusted proxy sends no Forwarded"}},
		{"of one address", warned(t, core.ByIPHeader("CF-Connecting-IP", "10.0.0.0/8"), forwarded),
			[]string{"a trusted proxy sends no CF-Connecting-IP"}},
		{"within First", warned(t, core.First(core.ByHeader("X-API-Key", core.Unverified),
			core.ByForwardedIP("10.0.0.0/8")), bare), []string{"a trusted proxy sends no X-Forwarded-For"}},
		{"sent", warned(t, core.ByForwardedIP("10.0.0.0/8"), forwarded), nil},
		{"not trusted", warned(t, core.ByForwardedIP("10.0.0.0/8"), from("203.0.113.9:1")), nil},
	} {
		lines := 0
		if c.want != nil {
			lines = 1
		}
		if strings.Count(c.got, "\n") != lines {
			t.Errorf("%s: want %d lines:\n%s", c.desc, lines, c.got)
		}
		for _, want := range c.want {
			if !strings.Contains(c.got, want) {
				t.Errorf("%s: the log lacks %s:\n%s", c.desc, want, c.got)
			}
		}
		for _, private := range []string{"10.0.0", "198.51.100", "203.0.113"} {
			if strings.Contains(c.got, private) {
				t.Errorf("%s: %s is in the log:\n%s", c.desc, private, c.got)
			}
		}
	}
}

// Middleware such as chi's RealIP lets a client choose its key under each of these, whenever it first forges a header.
func TestWarnsOfRewrittenPeer(t *testing.T) {
	plain, forged := from("203.0.113.9:1"), from("198.51.100.7", "X-Forwarded-For", "198.51.100.7")
	for name, k := range map[string]core.Key{
		"ByIP": core.ByIP(), "ByForwardedIP": core.ByForwardedIP("10.0.0.0/8"),
		"ByForwarded": core.ByForwarded("10.0.0.0/8"),
		"ByIPHeader": core.ByIPHeader("CF-Connecting-IP",
			"10.0.0.0/8"), "trusted": core.ByForwardedIP("198.51.100.0/24"),
	} {
		late := make([]web, 0, 400)
		for range 300 {
			late = append(late, plain)
		}
		for _, reqs := range [][]web{{forged}, append(late, forged)} {
			got := warned(t, k, reqs...)
			const serverless = "an address that a serverless gateway has set is right, and nothing is wrong"
			if n := strings.Count(got, "has no port, so other middleware has replaced it"); n != 1 ||
				!strings.Contains(got, serverless) {
				t.Errorf("%s, %d requests: said %d times, want once:\n%s", name, len(reqs), n, got)
			}
			if strings.Contains(got, "198.51.100") || strings.Contains(got, "203.0.113") {
				t.Errorf("%s: an address is in the log:\n%s", name, got)
			}
		}
	}
}

// A client has 2^64 IPv6 addresses, and 2^16 ports, so a key that is one of them as a text limits nobody.
func TestWarnsOfAddressesAsTexts(t *testing.T) {
	by := func(text string) core.Key {
		return core.By(func(*http.Request) (string, error) { return text, nil })
	}
	peer := core.By(func(r *http.Request) (string, error) { return r.RemoteAddr, nil })
	value := core.ByValue(foundKey{})
	for _, c := range []struct {
		desc  string
		key   core.Key
		r     web
		warns bool
	}{
		{"IPv6", by("2001:db8::7"), from("192.0.2.1:1"), true},
		{"mapped", by("::ffff:192.0.2.1"), from("192.0.2.1:1"), true},
		{"a port", peer, from("192.0.2.1:1"), true},
		{"IPv6 with a port", peer, from("[2001:db8::7]:1"), true},
		{"a value", value, found("2001:db8::7"), true},
		{"within First", core.First(by("2001:db8::7"), core.ByIP()), from("192.0.2.1:1"), true},
		{"IPv4", by("192.0.2.1"), from("192.0.2.1:1"), false},
		{"a name", by("tenant:7"), from("192.0.2.1:1"), false},
		{"an address", value, found(netip.MustParseAddr("2001:db8::7")), false},
	} {
		got := warned(t, c.key, c.r)
		if n := strings.Count(got, "the text of a key is an IPv6 address"); (n == 1) != c.warns ||
			strings.Count(got, "\n") != n || c.warns != strings.Contains(got, "core.ByAddr") {
			t.Errorf("%s: want a warning once: %v:\n%s", c.desc, c.warns, got)
		}
		if strings.Contains(got, "2001:db8") || strings.Contains(got, "192.0.2") {
			t.Errorf("%s: an address is in the log:\n%s", c.desc, got)
		}
	}
}
