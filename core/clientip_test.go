package core_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
)

// A listener on a Unix socket is a proxy only if it is named.
func TestUnixSocketsAreTrustedByName(t *testing.T) {
	for _, c := range []struct {
		trusted []string
		want    error
	}{{[]string{"10.0.0.0/8"}, core.ErrNoKey}, {[]string{"10.0.0.0/8", "unix"}, nil}} {
		r := from("@", "X-Forwarded-For", "203.0.113.9")
		r.Request = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey,
			&net.UnixAddr{Name: "/run/sash.sock", Net: "unix"}))
		if _, err := keyOf(t, core.ByForwardedIP(c.trusted...), r); !errors.Is(err, c.want) {
			t.Errorf("%v: %v, want %v", c.trusted, err, c.want)
		}
	}
}

// The cost of parsing a header is bounded, whatever a client sends.
func TestHugeForwardingHeaders(t *testing.T) {
	for _, value := range []string{
		strings.Repeat(",", 900_000),
		strings.Repeat("10.0.0.1,", 100_000) + "10.0.0.1",
		strings.Repeat("x", 900_000),
		`for="` + strings.Repeat("x", 900_000) + `"`,
		`for="` + strings.Repeat(`\x`, 400_000),
		strings.Repeat("a=b;", 1000) + "for=198.51.100.7",
	} {
		r := request("10.0.0.1:1")
		r.Request.Header["X-Forwarded-For"] = []string{value}
		r.Request.Header["Forwarded"] = []string{value}
		for _, key := range []core.Key{
			core.ByForwardedIP("10.0.0.0/8"), core.ByForwarded("10.0.0.0/8"),
			core.ByIPHeader("X-Forwarded", "10.0.0.0/8"),
		} {
			l := newLimiterBy(t, core.PerHour(1_000_000), key)
			const runs = 20
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range runs {
				if _, err := l.Check(r); err != nil {
					t.Fatal(err)
				}
			}
			runtime.ReadMemStats(&after)
			if n := (after.TotalAlloc - before.TotalAlloc) / runs; n > 100_000 {
				t.Errorf("%.20s...: %d bytes allocated", value, n)
			}
		}
	}
}

// addrOf is the address of an ip key, if it is one.
func addrOf(t *testing.T, key string) (netip.Addr, bool) {
	t.Helper()
	text, ok := strings.CutPrefix(key, "1-per-minute:own.ip:")
	if !ok {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.Is4In6() || a.Zone() != "" || a.String() != text {
		t.Errorf("key %q is not a canonical address", key)
	}
	return a, true
}

// forwarded returns what finds the key of a request that a proxy passes on with lines of a header.
func forwarded(t *testing.T, k core.Key, header string) func(lines ...string) string {
	return func(lines ...string) string {
		r := request("10.0.0.1:1")
		r.Request.Header[header] = lines
		got, err := keyOf(t, k, r, core.WithIPv6Prefix(128))
		if err != nil {
			t.Fatalf("%q: %v", lines, err)
		}
		return got
	}
}

// wantClient checks that nothing in front of a chain that ends in the client's address changes the key.
func wantClient(t *testing.T, ask func(lines ...string) string, all ...[]string) {
	t.Helper()
	for _, lines := range all {
		if got := ask(lines...); got != "1-per-minute:own.ip:198.51.100.7" {
			t.Errorf("%q: key %s, want that of 198.51.100.7", lines, got)
		}
	}
}

// FuzzForwardedFor checks for any header that the client is never a trusted proxy's address while an untrusted one is
// in the chain behind it.
func FuzzForwardedFor(f *testing.F) {
	for _, s := range []string{
		"", "198.51.100.7", "6.6.6.6, 198.51.100.7, 10.0.0.2", "unknown", "[2001:db8::1]:80", "::ffff:10.0.0.2",
		",", "1.2.3.4:5,", "\t10.0.0.1 ,", "%%%", "fe80::1%eth0",
	} {
		f.Add(s)
	}
	trusted := netip.MustParsePrefix("10.0.0.0/8")
	f.Fuzz(func(t *testing.T, s string) {
		ask := forwarded(t, core.ByForwardedIP(trusted.String()), "X-Forwarded-For")
		if a, ok := addrOf(t, ask(s)); ok && trusted.Contains(a) {
			for element := range strings.SplitSeq(s, ",") {
				e := strings.Trim(element, " \t")
				if e == "" && strings.Trim(s, " \t") == "" {
					continue
				}
				if b, err := netip.ParseAddr(e); err == nil && !trusted.Contains(b.Unmap()) && !b.IsUnspecified() {
					t.Errorf("%q: the client is the proxy %v although %v is in the chain", s, a, b)
				}
			}
		}
		wantClient(t, ask, []string{s + ",198.51.100.7"}, []string{s, "198.51.100.7"},
			[]string{s + ", 198.51.100.7 , 10.0.0.2"}, []string{s + ",198.51.100.7:80", "10.0.0.2,10.0.0.3"})
	})
}

func FuzzForwarded(f *testing.F) {
	for _, s := range []string{
		"", "for=198.51.100.7", `For="[2001:db8::17]:4711";proto=https`, `for="x`, `for=_hidden, for=unknown`,
		`for=1.1.1.1;for=2.2.2.2`, `for="1.1.1.1:_p"`, `by=1;;for=`, `for="a\"b"`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ask := forwarded(t, core.ByForwarded("10.0.0.0/8"), "Forwarded")
		addrOf(t, ask(s))
		wantClient(t, ask, []string{s + ",for=198.51.100.7"}, []string{s, "for=198.51.100.7"},
			[]string{s + `, For="198.51.100.7:80";by=10.0.0.1 , for=10.0.0.2`})
	})
}

// FuzzRemoteAddr checks that a peer has one canonical address or none, and that no header changes that.
func FuzzRemoteAddr(f *testing.F) {
	for _, s := range []string{
		"", "@", "203.0.113.9:1", "[2001:db8::1]:1", "::ffff:1.2.3.4", "[::ffff:1.2.3.4%x]:9",
		"[fe80::1%eth0]:80", "1.2.3.4", "[1.2.3.4]", "0.0.0.0:0",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		bare, err := keyOf(t, core.ByIP(), request(s), core.WithIPv6Prefix(128))
		headers := []string{"X-Forwarded-For", "6.6.6.6", "X-Real-Ip", "6.6.6.6", "Forwarded", "for=6.6.6.6"}
		spoofed, spoofedErr := keyOf(t, core.ByIP(), request(s, headers...), core.WithIPv6Prefix(128))
		if bare != spoofed || (err == nil) != (spoofedErr == nil) {
			t.Errorf("%q: headers change the key from %s to %s", s, bare, spoofed)
		}
		if err != nil {
			if !errors.Is(err, core.ErrNoKey) {
				t.Errorf("%q: %v", s, err)
			}
			return
		}
		a, ok := addrOf(t, bare)
		if !ok || a.IsUnspecified() {
			t.Errorf("%q: key %s", s, bare)
		}
		// The canonical form is a fixed point.
		r := request(netip.AddrPortFrom(a, 1).String())
		if again, err := keyOf(t, core.ByIP(), r, core.WithIPv6Prefix(128)); err != nil || again != bare {
			t.Errorf("%q: %s is %s the next time, %v", s, bare, again, err)
		}
	})
}
