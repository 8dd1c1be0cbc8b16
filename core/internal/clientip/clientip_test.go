package clientip_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core/internal/clientip"
)

func hop(text string) clientip.Hop {
	text, unidentified := strings.CutPrefix(text, "unidentified@")
	if text == clientip.UnixSocket {
		return clientip.Hop{Unidentified: unidentified}
	}
	return clientip.Hop{Addr: netip.MustParseAddr(text), Unidentified: unidentified}
}

func TestReaders(t *testing.T) {
	var trusted clientip.Proxies
	for _, s := range []string{"10.0.0.0/8", "2001:db8:ffff::/48", clientip.UnixSocket} {
		if err := trusted.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	many := strings.Repeat("10.0.0.1,", 64)
	for _, c := range []struct {
		desc  string
		read  clientip.Reader
		lines []string
		want  string
	}{
		{"one address", clientip.XForwardedFor, []string{"192.0.2.1"}, "192.0.2.1"},
		{"two lines", clientip.XForwardedFor, []string{"192.0.2.1", "192.0.2.2 , 10.0.0.2"}, "192.0.2.2"},
		{"with port", clientip.XForwardedFor, []string{"[2001:db8::1]:80"}, "2001:db8::1"},
		{"proxies only", clientip.XForwardedFor, []string{"10.0.0.3, 2001:db8:ffff::1"}, "10.0.0.3"},
		{"an empty element", clientip.XForwardedFor, []string{"192.0.2.1,, 10.0.0.2"}, "unidentified@10.0.0.2"},
		{"no address", clientip.XForwardedFor, []string{"192.0.2.1, unknown"}, "unidentified@10.0.0.9"},
		{"as many proxies as are followed", clientip.XForwardedFor, []string{many[:63*9] + "10.0.0.7"}, "10.0.0.1"},
		{"more proxies", clientip.XForwardedFor, []string{"192.0.2.1," + many[:63*9] + "10.0.0.7"},
			"unidentified@10.0.0.1"},
		{"parameters", clientip.Forwarded, []string{`proto=https ; For="[2001:db8::1]:_x";by=a`}, "2001:db8::1"},
		{"a list", clientip.Forwarded, []string{`for=192.0.2.1, for=192.0.2.2, for=10.0.0.2`}, "192.0.2.2"},
		{"an escape", clientip.Forwarded, []string{`for="192.0.2.\1"`}, "192.0.2.1"},
		{"an open quote before the last comma", clientip.Forwarded, []string{`for="x, for=192.0.2.2`}, "192.0.2.2"},
		{"a long host", clientip.Forwarded, []string{`host="` + strings.Repeat("x", 65) + `:8443";for=192.0.2.2`},
			"192.0.2.2"},
		{"a long node", clientip.Forwarded, []string{`for="192.0.2.2` + strings.Repeat("x", 65) + `"`},
			"unidentified@10.0.0.9"},
		{"two for parameters", clientip.Forwarded, []string{"for=192.0.2.1;for=192.0.2.1"}, "unidentified@10.0.0.9"},
		{"an obfuscated node", clientip.Forwarded, []string{"for=_hidden"}, "unidentified@10.0.0.9"},
		{"no value", clientip.Forwarded, []string{"for"}, "unidentified@10.0.0.9"},
		{"an unquoted space", clientip.Forwarded, []string{"for=192.0.2.1 x"}, "unidentified@10.0.0.9"},
		{"one address", clientip.SingleAddr, []string{" ::ffff:192.0.2.1 "}, "192.0.2.1"},
		{"a trusted address", clientip.SingleAddr, []string{"10.0.0.2"}, "10.0.0.2"},
		{"two addresses", clientip.SingleAddr, []string{"192.0.2.1, 192.0.2.2"}, "unidentified@10.0.0.9"},
		{"two lines", clientip.SingleAddr, []string{"192.0.2.1", "192.0.2.1"}, "unidentified@10.0.0.9"},
	} {
		if got := c.read(c.lines, &trusted, hop("10.0.0.9")); got != hop(c.want) {
			t.Errorf("%s: %q is %+v, want %s", c.desc, c.lines, got, c.want)
		}
	}
	got := clientip.XForwardedFor([]string{"unknown"}, &trusted, clientip.Hop{})
	if got != hop("unidentified@unix") || !trusted.TrustUnix() {
		t.Errorf("behind a Unix socket, no address is %+v", got)
	}
}

func TestParseAddr(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"192.0.2.1", "192.0.2.1"},
		{"192.0.2.1:80", "192.0.2.1"},
		{"::ffff:192.0.2.1", "192.0.2.1"},
		{"[2001:DB8::1]", "2001:db8::1"},
		{"[fe80::1%eth0]:80", "fe80::1"},
		{"[192.0.2.1]", "invalid IP"},
		{"0.0.0.0:80", "invalid IP"},
		{"::", "invalid IP"},
		{"", "invalid IP"},
		{"fe80::1%" + strings.Repeat("x", 64), "invalid IP"},
	} {
		if a := clientip.ParseAddr(c.text); a.String() != c.want {
			t.Errorf("%q is %v, want %s", c.text, a, c.want)
		}
	}
}

func TestParsePrefix(t *testing.T) {
	for text, want := range map[string]string{
		"10.1.2.3/8":          "10.0.0.0/8",
		"10.1.2.3":            "10.1.2.3/32",
		"::ffff:10.0.0.0/104": "10.0.0.0/8",
		"::ffff:10.0.0.1":     "10.0.0.1/32",
		"2001:db8::1":         "2001:db8::1/128",
		"0.0.0.0/0":           "it contains all addresses",
		"::ffff:0.0.0.0/96":   "it contains all addresses",
		"::ffff:0:0/90":       "at least 96 bits, not 90",
		"fe80::1%eth0":        "write an address",
		"proxy.example":       "write an address",
		"unix":                "write an address",
	} {
		got, err := clientip.ParsePrefix(text)
		if err == nil && got.String() != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %v, %v; want %s", text, got, err, want)
		}
	}
}
