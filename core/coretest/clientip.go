package coretest

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
)

//go:embed testdata/clientip.json
var clientVectors []byte

type clientVector struct {
	ID, Desc string
	Config   struct {
		Trusted []string
		Source  string
		IPv4    int `json:"ipv4_prefix"`
		IPv6    int `json:"ipv6_prefix"`
	}
	RemoteAddr string `json:"remote_addr"`
	Local      string `json:"local_network"`
	Headers    [][2]string
	Want       struct{ Kind, Key string }
}

func (v *clientVector) key() core.Key {
	switch v.Config.Source {
	case "none":
		return core.ByIP()
	case "xff":
		return core.ByForwardedIP(v.Config.Trusted...)
	case "forwarded":
		return core.ByForwarded(v.Config.Trusted...)
	default:
		return core.ByIPHeader(strings.TrimPrefix(v.Config.Source, "header:"), v.Config.Trusted...)
	}
}

// peerRequest returns a request as it comes from a peer.
func peerRequest(remote, local string, headers [][2]string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = remote
	var addr net.Addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}
	if local == "unix" {
		addr = &net.UnixAddr{Name: "/run/sash.sock", Net: "unix"}
	}
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, addr))
	for _, h := range headers {
		r.Header.Add(h[0], h[1])
	}
	return r
}

// ClientIP checks which requests share a quota: for each vector with a limit of one, the request passes and then does
// not, the expected client without any header does not either, and an unrelated one does.
//
// The function that serve returns must take the peer from the request's RemoteAddr, and the listener from
// [http.LocalAddrContextKey].
func ClientIP(t *testing.T, serve Serve) {
	var file struct{ Vectors []clientVector }
	if err := json.Unmarshal(clientVectors, &file); err != nil || len(file.Vectors) == 0 {
		t.Fatalf("%d vectors, %v", len(file.Vectors), err)
	}
	for _, v := range file.Vectors {
		t.Run(v.ID, func(t *testing.T) {
			ran := 0
			l := limiterFor(t, new(FakeStore), core.PerHour(1), v.key(),
				core.WithIPv4Prefix(v.Config.IPv4), core.WithIPv6Prefix(v.Config.IPv6))
			send := serve(t, func() string { ran++; return text }, l)
			check := func(desc string, r *http.Request, want int) {
				t.Helper()
				before := ran
				if got := send(r).StatusCode; got != want || (ran > before) != (want == http.StatusOK) {
					t.Errorf("%s: %s: status %d, want %d; handler ran %d times", v.Desc, desc, got, want, ran-before)
				}
			}
			vector := func() *http.Request { return peerRequest(v.RemoteAddr, v.Local, v.Headers) }
			if v.Want.Kind == "none" {
				check("no key", vector(), http.StatusBadRequest)
				check("no key again", vector(), http.StatusBadRequest)
				return
			}
			check("first", vector(), http.StatusOK)
			check("again", vector(), http.StatusTooManyRequests)
			if v.Want.Kind == "client" {
				host, _, _ := strings.Cut(v.Want.Key, "/")
				if strings.HasSuffix(host, "::") { // a host within the prefix
					host += "1"
				}
				client := peerRequest(net.JoinHostPort(host, "1"), "tcp", nil)
				check("the client without headers", client, http.StatusTooManyRequests)
			} else if hop := strings.TrimPrefix(v.Want.Key, "unidentified@"); hop != "unix" {
				check("the hop itself", peerRequest(net.JoinHostPort(hop, "1"), "tcp", nil), http.StatusOK)
			}
			check("an unrelated client", peerRequest("192.0.2.254:1", "tcp", nil), http.StatusOK)
		})
	}
}

// trailers sends fields behind the body, where a proxy leaves what clients write. They choose no key.
func trailers(t *testing.T, serve Serve) {
	key := core.First(core.ByHeader("X-User", core.Unverified), core.ByForwarded(loopback...))
	send := serve(t, func() string { return text }, limiterFor(t, new(FakeStore), core.PerHour(4), key))
	for i := range 8 {
		r := newRequest(t, []string{http.MethodPost, http.MethodGet}[i%2])
		r.Header["Forwarded"] = []string{fmt.Sprintf("for=203.0.113.%d", i), "for=192.0.2.1"} // the last by a proxy
		r.Header.Set("Accept-Encoding", "identity")                                           // else it is behind that
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader([]string{"a body", ""}[i/2%2])), -1
		r.Trailer = http.Header{[]string{"X-User", "Forwarded"}[i%3%2]: {fmt.Sprintf("for=198.51.100.%d", i)}}
		want := http.StatusOK
		if i >= 4 {
			want = http.StatusTooManyRequests
		}
		if got := send(r).StatusCode; got != want {
			t.Errorf("request %d: status %d, want %d", i+1, got, want)
		}
	}
}
