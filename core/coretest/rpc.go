package coretest

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sashlimit/sash/core"
)

// What calls of Connect are told, how a stream frames it, and the details of gRPC.
const (
	deniedCall = `{"code":"resource_exhausted","message":"Quota Exceeded: Try again in 10 seconds.",` +
		`"details":[{"type":"google.rpc.RetryInfo","value":"CgIICg"}]}`
	noKeyCall = `{"code":"invalid_argument",` +
		`"message":"Bad Request: The request does not identify whose quota it uses."}`
	deniedStream  = "\x02\x00\x00\x00\x99" + `{"error":` + deniedCall + `}`
	deniedDetails = "CAgSKFF1b3RhIEV4Y2VlZGVkOiBUcnkgYWdhaW4gaW4gMTAgc2Vjb25kcy4a" +
		"MAoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIECgIICg"
	storeDetails = "CA4SMlRlbXBvcmFyeSBSZWR1Y2VkIENhcGFjaXR5OiBUcnkgYWdhaW4gaW4gMSBzZWNvbmQu" +
		"GjAKKHR5cGUuZ29vZ2xlYXBpcy5jb20vZ29vZ2xlLnJwYy5SZXRyeUluZm8SBAoCCAE"
)

// calls checks that calls of gRPC, gRPC-Web and Connect are refused in their protocol, with the same header fields as
// other requests, and that they are not served.
func calls(t *testing.T, m mount) {
	grpc := func(mediaType, status, message string, more fields) fields {
		f := fields{"Cache-Control": "no-store"}
		maps.Copy(f, more)
		f["Content-Type"], f["Grpc-Status"], f["Grpc-Message"] = mediaType, status, message
		return f
	}
	over := denied(`"3-per-10s";r=0;t=10`, "10")
	connect := maps.Clone(over)
	connect["Content-Type"] = "application/json"
	stream := maps.Clone(over)
	stream["Content-Type"] = "application/connect+proto"
	exhausted := func(mediaType string) fields {
		f := maps.Clone(over)
		f["Grpc-Retry-Pushback-Ms"] = "10000"
		f["Grpc-Status-Details-Bin"] = deniedDetails
		return grpc(mediaType, "8", "Quota Exceeded: Try again in 10 seconds.", f)
	}
	deny := core.WithDenyList(core.ByIP(), loopback...)
	missing := core.ByHeader("X-Missing", core.Unverified)
	unavailable := "Temporary Reduced Capacity: Try again in 1 second."
	for _, c := range []struct {
		desc, contentType string
		get               bool
		key               core.Key
		opts              []core.Option
		fail              error
		before            int // requests that are served
		status            int
		header            fields
		body              string
	}{
		{desc: "Connect", contentType: "application/proto", key: core.ByIP(), before: 3,
			status: 429, header: connect, body: deniedCall},
		{desc: "Connect by GET", get: true, key: core.ByIP(), before: 3,
			status: 429, header: connect, body: deniedCall},
		{desc: "Connect, no key", contentType: "application/json", key: missing, status: 400,
			header: fields{"Content-Type": "application/json", "Cache-Control": "no-store"}, body: noKeyCall},
		{desc: "stream of Connect", contentType: "application/connect+proto", key: core.ByIP(), before: 3,
			status: 200, header: stream, body: deniedStream},
		{desc: "gRPC", contentType: "application/grpc", key: core.ByIP(), before: 3,
			status: 200, header: exhausted("application/grpc")},
		{desc: "gRPC-Web", contentType: "application/grpc-web-text+proto", key: core.ByIP(), before: 3,
			status: 200, header: exhausted("application/grpc-web-text+proto")},
		{desc: "gRPC, deny list", contentType: "application/grpc+json", key: core.ByIP(), opts: []core.Option{deny},
			status: 200, header: grpc("application/grpc+json", "7", "Forbidden", nil)},
		{desc: "gRPC, store error", contentType: "application/grpc", key: core.ByIP(), fail: errors.New("boom"),
			opts: []core.Option{core.WithFailure(core.FailClosed)}, status: 200,
			header: grpc("application/grpc", "14", unavailable, fields{
				"Retry-After": "1", "Grpc-Retry-Pushback-Ms": "1000", "Grpc-Status-Details-Bin": storeDetails,
			})},
		{desc: "gRPC, panic", contentType: "application/grpc",
			key:    core.By(func(context.Context) (string, error) { panic("boom") }),
			status: 200, header: grpc("application/grpc", "13", "Internal Server Error", nil)},
	} {
		for protocol, serve := range map[string]func(*testing.T, http.Handler) func(*http.Request) *http.Response{
			"HTTP1": HTTP1, "HTTP2": HTTP2,
		} {
			t.Run(c.desc+"/"+protocol, func(t *testing.T) {
				store := new(FakeStore)
				var ran atomic.Int64
				store.Fail(c.fail)
				send := serve(t, m(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran.Add(1) }),
					limiterFor(t, store, three, c.key, c.opts...)))
				request := func() *http.Request {
					r := newRequest(t, http.MethodPost)
					if c.get {
						r = newRequest(t, http.MethodGet)
						r.URL.RawQuery = "encoding=json&message=%7B%7D&connect=v1"
					}
					r.Body = io.NopCloser(strings.NewReader("\x00\x00\x00\x00\x00"))
					r.Header.Set("Content-Type", c.contentType)
					r.Header.Set("Connect-Protocol-Version", "1")
					return r
				}
				for range c.before {
					send(request())
				}
				r := send(request())
				body, err := io.ReadAll(r.Body)
				if r.StatusCode != c.status || string(body) != c.body || err != nil || int(ran.Load()) != c.before {
					t.Errorf("status %d, body %q, %v; want %d, %q; %d were served",
						r.StatusCode, body, err, c.status, c.body, ran.Load())
				}
				r.StatusCode = 0 // of 200, checkFields does not compare Content-Type
				checkFields(t, c.desc, r, c.header)
			})
		}
	}
}
