package coretest

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/sashlimit/sash/core"
)

// Serve mounts limiters, the outermost first, on all methods and paths in
// front of a handler that answers 200 with text. The function it gives sends a
// request to that and returns the response.
type Serve func(t *testing.T, text func() string, limiters ...*core.Limiter) func(*http.Request) *http.Response

// HTTP1 serves h on a loopback address over HTTP/1.1 until the test ends.
func HTTP1(t *testing.T, h http.Handler) func(*http.Request) *http.Response {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return Send(t, server.Client(), server.URL)
}

// HTTP2 serves h on a loopback address over TLS and HTTP/2 until the test
// ends. All requests are streams of one connection.
func HTTP2(t *testing.T, h http.Handler) func(*http.Request) *http.Response {
	t.Helper()
	const hello = "/coretest/hello"
	var connections atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != hello {
			h.ServeHTTP(w, r)
		}
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() {
		server.Close()
		if n := connections.Load(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
	send := Send(t, server.Client(), server.URL)
	// Once a connection is there, the client opens no others.
	if r := send(httptest.NewRequest(http.MethodGet, hello, nil)); r.ProtoMajor != 2 {
		t.Fatalf("protocol %s, want HTTP/2", r.Proto)
	}
	return send
}

// Send returns a function that sends requests to base, whatever host they name, and reads the responses to their end.
func Send(t *testing.T, client *http.Client, base string) func(*http.Request) *http.Response {
	t.Helper()
	target, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	return func(r *http.Request) *http.Response {
		r = r.Clone(r.Context())
		r.URL.Scheme, r.URL.Host, r.Host, r.RequestURI = target.Scheme, target.Host, "", ""
		response, err := client.Do(r)
		if err != nil {
			t.Error(err)
			return &http.Response{Header: http.Header{}, Body: http.NoBody}
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Error(err)
		}
		response.Body = io.NopCloser(bytes.NewReader(body))
		return response
	}
}
