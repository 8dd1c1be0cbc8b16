package adapter_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core/adapter"
)

func TestPeerOf(t *testing.T) {
	long := "fe80::1%" + strings.Repeat("e", 50)
	for remote, want := range map[string]struct {
		addr      string // empty for none
		rewritten bool
	}{
		"192.0.2.1:1234":          {"192.0.2.1", false},
		"[2001:db8::1]:1234":      {"2001:db8::1", false},
		"[::ffff:192.0.2.1]:1234": {"::ffff:192.0.2.1", false},
		"[fe80::1%eth0]:1234":     {"fe80::1%eth0", false},
		"192.0.2.1":               {"192.0.2.1", true},
		"2001:db8::1":             {"2001:db8::1", true},
		"2001:db8::1:443":         {"2001:db8::1:443", true}, // an address, and not one with a port
		"[2001:db8::1]":           {"2001:db8::1", true},
		"fe80::1%eth0":            {"fe80::1%eth0", true},
		"[fe80::1%eth0]":          {"fe80::1%eth0", true},
		"[::ffff:192.0.2.1]":      {"::ffff:192.0.2.1", true},
		long:                      {long, true},
		"[" + long + "]:123":      {long, false}, // 64 bytes, the most that are read
		"[" + long + "]:1234":     {},            // 65 bytes
		"[192.0.2.1]":             {},            // brackets are for IPv6
		"[192.0.2.1]:1234":        {},
		"0.0.0.0:1234":            {}, // the unspecified address is nobody's
		"0.0.0.0":                 {},
		"[::]:1234":               {},
		"::":                      {},
		"[::%eth0]:1234":          {},
		"[::ffff:0.0.0.0]:1234":   {},
		"":                        {},
		"@":                       {}, // a client on a Unix socket
		"[]":                      {},
		"192.0.2.1:":              {},
		"192.0.2.01:1234":         {},
		"192.0.2.1, 192.0.2.2":    {},
		" 192.0.2.1:1234":         {},
		"2001:db8::1]:1234":       {},
		"[2001:db8::1":            {},
		"example.com:1234":        {},
	} {
		peer := adapter.Peer{Rewritten: want.rewritten}
		if want.addr != "" {
			peer.Addr = netip.MustParseAddr(want.addr)
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = remote
		if got := adapter.PeerOf(r); got != peer {
			t.Errorf("%q: %+v, want %+v", remote, got, peer)
		}
	}
}

// A request without an address came over a Unix socket if the server listens on one.
func TestPeerOfListener(t *testing.T) {
	for _, test := range []struct {
		remote string
		local  any // in the request's context
		unix   bool
	}{
		{"@", &net.UnixAddr{Name: "/run/app.sock", Net: "unix"}, true},
		{"", &net.UnixAddr{Name: "/run/app.sock", Net: "unixpacket"}, true},
		{"", &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80}, false},
		{"", "unix", false},
		{"", nil, false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = test.remote
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, test.local))
		if got := adapter.PeerOf(r); got != (adapter.Peer{Unix: test.unix}) {
			t.Errorf("from %q to %v: %+v, want Unix %v", test.remote, test.local, got, test.unix)
		}
	}
}

// textAddr is an address of another network than those of package net.
type textAddr struct{ network, text string }

func (a textAddr) Network() string { return a.network }
func (a textAddr) String() string  { return a.text }

func TestPeerAddr(t *testing.T) {
	for _, test := range []struct {
		addr net.Addr
		want adapter.Peer
	}{
		{nil, adapter.Peer{}},
		{(*net.TCPAddr)(nil), adapter.Peer{}},
		{&net.TCPAddr{}, adapter.Peer{}},
		{&net.TCPAddr{IP: net.IPv4zero, Port: 80}, adapter.Peer{}},
		{&net.TCPAddr{IP: net.IPv6zero, Port: 80}, adapter.Peer{}},
		{&net.TCPAddr{IP: net.IP{1, 2, 3}, Port: 80}, adapter.Peer{}}, // no address has 3 bytes
		{&net.TCPAddr{IP: net.IP{192, 0, 2, 1}, Port: 80}, adapter.Peer{Addr: netip.MustParseAddr("192.0.2.1")}},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8::1")}, adapter.Peer{Addr: netip.MustParseAddr("2001:db8::1")}},
		{
			&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0"},
			adapter.Peer{Addr: netip.MustParseAddr("fe80::1%eth0")},
		},
		{&net.UDPAddr{IP: net.IP{192, 0, 2, 1}, Port: 80}, adapter.Peer{Addr: netip.MustParseAddr("192.0.2.1")}},
		{&net.UnixAddr{Name: "@", Net: "unix"}, adapter.Peer{Unix: true}},
		{&net.UnixAddr{Net: "unixpacket"}, adapter.Peer{Unix: true}},
		{textAddr{"pipe", "pipe"}, adapter.Peer{}},
		{textAddr{"quic", "[2001:db8::1]:443"}, adapter.Peer{Addr: netip.MustParseAddr("2001:db8::1")}},
		{textAddr{"quic", "[::]:443"}, adapter.Peer{}},
	} {
		if got := adapter.PeerAddr(test.addr); got != test.want {
			t.Errorf("%T %v: %+v, want %+v", test.addr, test.addr, got, test.want)
		}
	}
}

type statusError int

func (s statusError) Error() string { return fmt.Sprint("status ", int(s)) }

func TestErrorWithCause(t *testing.T) {
	cause := fmt.Errorf("over the quota: %w", context.Canceled)
	err := adapter.ErrorWithCause(statusError(420), cause)
	if err.Error() != "status 420" {
		t.Errorf("it reads %q", err)
	}
	if !errors.Is(err, statusError(420)) || !errors.Is(err, cause) || !errors.Is(err, context.Canceled) {
		t.Error("it is not both of its errors")
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.Error("it is an error that it was not made of")
	}
	var status statusError
	if twice := adapter.ErrorWithCause(err, statusError(500)); !errors.As(twice, &status) || status != 420 {
		t.Errorf("the status is %v, want that of the error and not of its cause", status)
	}
}

// record notes what reaches the server's writer.
type record struct {
	http.ResponseWriter

	calls []string
}

func (r *record) WriteHeader(status int) { r.calls = append(r.calls, fmt.Sprint(status)) }
func (r *record) FlushError() error      { r.calls = append(r.calls, "flush"); return nil }
func (r *record) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	r.calls = append(r.calls, "hijack")
	return nil, nil, nil
}

func (r *record) Write(b []byte) (int, error) {
	r.calls = append(r.calls, string(b))
	return len(b), nil
}

func TestRefuse(t *testing.T) {
	write := func(w http.ResponseWriter, text string) {
		if n, err := w.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("Write: %d, %v", n, err)
		}
	}
	for _, test := range []struct {
		name   string
		answer func(http.ResponseWriter)
		want   string
	}{
		{"nothing", func(http.ResponseWriter) {}, "429"},
		{"a body", func(w http.ResponseWriter) { write(w, "a"); write(w, "b") }, "429 a b"},
		{"another status", func(w http.ResponseWriter) { w.WriteHeader(503) }, "503"},
		{"another status and a body", func(w http.ResponseWriter) { w.WriteHeader(200); write(w, "a") }, "200 a"},
		{"early hints", func(w http.ResponseWriter) { w.WriteHeader(103) }, "103 429"},
		{"early hints and a body", func(w http.ResponseWriter) { w.WriteHeader(103); write(w, "a") }, "103 429 a"},
		{"a flush", func(w http.ResponseWriter) {
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			write(w, "a")
		}, "429 flush a"},
		{"a connection that is taken over", func(w http.ResponseWriter) {
			if _, _, err := http.NewResponseController(w).Hijack(); err != nil {
				t.Error(err)
			}
		}, "hijack"},
		{"what was unwrapped", func(w http.ResponseWriter) {
			if _, ok := w.(interface{ Unwrap() http.ResponseWriter }).Unwrap().(*record); !ok {
				t.Error("the writer of the server is not within")
			}
		}, "429"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := new(record)
			adapter.Refuse(w, http.StatusTooManyRequests, test.answer)
			if got := strings.Join(w.calls, " "); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}
