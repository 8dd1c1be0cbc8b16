package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/sashlimit/sash/core/adapter"
)

// request is a request that another program serves, as rules see it.
type request struct {
	ctx    context.Context
	target adapter.Target
	peer   adapter.Peer
	header http.Header
	data   map[string]string
	cost   int
}

func (r *request) Context() context.Context { return r.ctx }

func (r *request) Peer() adapter.Peer { return r.peer }

func (r *request) Header(name string) []string { return r.header.Values(name) }

func (r *request) Value(key any) any {
	name, _ := key.(string)
	return r.data[name]
}

// Native returns nil: rules have no callbacks for requests of a framework.
func (r *request) Native() any { return nil }

func (r *request) Target() adapter.Target { return r.target }

// Cost returns what the caller says, or 0 for the cost of the rules.
func (r *request) Cost() int { return r.cost }

var _ adapter.Targeter = (*request)(nil)

const maxBody = 64 << 10

// fromJSON reads the request that the body of a call describes.
func fromJSON(w http.ResponseWriter, r *http.Request) (*request, error) {
	var body struct {
		Method  string            `json:"method"`
		Host    string            `json:"host"`
		Path    string            `json:"path"`
		IP      string            `json:"ip"`
		Headers map[string]string `json:"headers"`
		Data    map[string]string `json:"data"`
		Cost    int               `json:"cost"`
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil {
		return nil, fmt.Errorf("the body is not the JSON of a request: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something stands behind the JSON of the request")
	}
	peer := parsePeer(body.IP)
	switch {
	case body.IP != "" && !peer.Addr.IsValid():
		return nil, fmt.Errorf("ip: %q is not an address", body.IP)
	case body.Cost < 0:
		return nil, fmt.Errorf("cost: %d is less than 0", body.Cost)
	}
	header := make(http.Header, len(body.Headers))
	for name, value := range body.Headers {
		header.Add(name, value)
	}
	target := adapter.Target{Method: body.Method, Host: body.Host, Path: body.Path}
	return &request{r.Context(), target, peer, header, body.Data, body.Cost}, nil
}

// fromProxy reads the request that the header of a sub-request of nginx or Traefik describes.
func fromProxy(r *http.Request) (*request, error) {
	method, uri, host := "X-Original-Method", "X-Original-Uri", []string{r.Host} // of nginx
	if r.Header[uri] == nil {
		method, uri, host = "X-Forwarded-Method", "X-Forwarded-Uri", r.Header["X-Forwarded-Host"]
	}
	for _, other := range []string{"X-Forwarded-Method", "X-Forwarded-Uri", "X-Original-Method"} {
		if other != method && other != uri && r.Header[other] != nil {
			return nil, fmt.Errorf("there are both %s and %s: one of them is not of the proxy", uri, other)
		}
	}
	if len(r.Header[method]) != 1 || len(r.Header[uri]) != 1 || len(host) != 1 {
		return nil, errors.New("the proxy has to send X-Original-Method and X-Original-URI once (nginx), " +
			"or X-Forwarded-Method, -Uri and -Host (Traefik)")
	}
	sent, _, _ := strings.Cut(r.Header[uri][0], "#") // where the path ends for nginx; Traefik encodes the sign
	target, err := url.ParseRequestURI(sent)
	if err != nil {
		return nil, err
	}
	header := r.Header.Clone()
	peer := cutPeer(header)
	return &request{
		ctx: r.Context(), peer: peer, header: header,
		target: adapter.Target{
			Method: r.Header[method][0], Host: host[0], Path: target.Path, RawPath: target.RawPath,
		},
	}, nil
}

// cutPeer takes the last address from X-Forwarded-For, where the proxy has written the peer of its connection. The
// field remains as the proxy got it.
func cutPeer(h http.Header) adapter.Peer {
	list := strings.Join(h["X-Forwarded-For"], ",")
	h.Del("X-Forwarded-For")
	if end := strings.LastIndexByte(list, ','); end >= 0 {
		h.Set("X-Forwarded-For", list[:end])
		list = list[end+1:]
	}
	return parsePeer(strings.TrimSpace(list))
}

func parsePeer(text string) adapter.Peer {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return adapter.Peer{}
	}
	return adapter.PeerAddr(net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
}

// fromEnvoy reads the request from a call of Envoy, which has its method, its header, and its path behind a prefix.
func fromEnvoy(r *http.Request) *request {
	target := adapter.TargetOf(r)
	target.Path = strings.TrimPrefix(target.Path, "/authz")
	target.RawPath = strings.TrimPrefix(target.RawPath, "/authz")
	return &request{ctx: r.Context(), target: target, peer: adapter.PeerOf(r), header: r.Header}
}
