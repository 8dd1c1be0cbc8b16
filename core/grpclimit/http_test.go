package grpclimit_test

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/nethttp"
)

// wireClients are the protocols that connect-go's client speaks.
var wireClients = map[string][]connect.ClientOption{
	"Connect":      nil,
	"Connect JSON": {connect.WithProtoJSON()},
	"Connect gzip": {connect.WithSendGzip()},
	"Connect GET":  {connect.WithHTTPGet(), connect.WithIdempotency(connect.IdempotencyNoSideEffects)},
	"Connect GET, JSON": {connect.WithHTTPGet(), connect.WithProtoJSON(),
		connect.WithIdempotency(connect.IdempotencyNoSideEffects)},
	"gRPC":          {connect.WithGRPC()},
	"gRPC JSON":     {connect.WithGRPC(), connect.WithProtoJSON()},
	"gRPC-Web":      {connect.WithGRPCWeb()},
	"gRPC-Web JSON": {connect.WithGRPCWeb(), connect.WithProtoJSON()},
}

// expectConnect checks the error that a client of connect-go returns for a denied call.
func expectConnect(t *testing.T, err error) {
	t.Helper()
	var denied *connect.Error
	if !errors.As(err, &denied) || denied.Code() != connect.CodeResourceExhausted {
		t.Errorf("%v, want resource_exhausted", err)
		return
	}
	meta := denied.Meta()
	if !strings.HasPrefix(denied.Message(), "Quota Exceeded: Try again in ") || meta.Get("Retry-After") == "" ||
		meta.Get("RateLimit") == "" || meta.Get("RateLimit-Policy") != `"1-per-minute";q=1;w=60` {
		t.Errorf("%v, metadata %v", err, meta)
	}
	if len(denied.Details()) != 1 {
		t.Errorf("%d details", len(denied.Details()))
		return
	}
	value, err := denied.Details()[0].Value()
	info, ok := value.(*errdetails.RetryInfo)
	if delay := info.GetRetryDelay().AsDuration(); !ok || err != nil || delay <= 0 || delay > time.Minute {
		t.Errorf("detail %v, %v", value, err)
	}
}

// Middleware of net/http in front of connect-go's handlers answers every client in its protocol, and each denied call
// comes to the server once.
func TestConnectClients(t *testing.T) {
	for name, opts := range wireClients {
		for _, two := range []bool{false, true} {
			t.Run(name+map[bool]string{false: "/HTTP1", true: "/HTTP2"}[two], func(t *testing.T) {
				limit := nethttp.New(core.PerMinute(1), core.Join(core.ByIP(), core.By(
					func(r *http.Request) (string, error) { return r.URL.Path, nil })))
				url, a := newHTTP(t, limit(connectHandlers()))
				ctx := withPatience(t)
				call := connect.NewClient[text, text](client(t, two), url+callMethod, opts...)
				r, err := call.CallUnary(ctx, connect.NewRequest(&text{Value: "x"}))
				if err != nil || r.Msg.GetValue() != "x" {
					t.Fatal(err)
				}
				a.expect(t, 1)
				for range 2 {
					_, err := call.CallUnary(ctx, connect.NewRequest(&text{Value: "x"}))
					expectConnect(t, err)
					a.expect(t, 1)
				}
				if !two { // streams of both sides need HTTP/2
					return
				}
				stream := connect.NewClient[text, text](client(t, two), url+streamMethod, opts...)
				for i := range 2 {
					s := stream.CallBidiStream(ctx)
					s.Send(&text{Value: "x"}) // an error is told by Receive
					_, err := s.Receive()
					if i > 0 {
						expectConnect(t, err)
					} else if err != nil {
						t.Error(err)
					}
					s.CloseRequest()
					s.CloseResponse()
					a.expect(t, 1)
				}
			})
		}
	}
}

// A client that retries ResourceExhausted waits as long as the server says, so it sends two requests and not five.
func TestPushback(t *testing.T) {
	soon := core.Limit{Quota: 1, Window: 100 * time.Millisecond}
	url, a := newHTTP(t, nethttp.New(soon, core.ByIP())(connectHandlers()))
	c := dial(t, strings.TrimPrefix(url, "http://"), retrying("RESOURCE_EXHAUSTED"))
	ctx := withPatience(t)
	for i := range int64(3) {
		if _, err := ask(ctx, c); err != nil {
			t.Error(err)
		}
		if n := a.Swap(0); n > min(i+1, 2) {
			t.Errorf("call %d has come %d times to the server", i+1, n)
		}
	}
}

// A client that retries ResourceExhausted, and whose deadline is before the end of the wait, sends one request. grpc-go
// waits for the deadline then.
func TestDeadlineBeforeWait(t *testing.T) {
	url, a := newHTTP(t, nethttp.New(core.PerHour(1), core.ByIP())(connectHandlers()))
	c := dial(t, strings.TrimPrefix(url, "http://"), retrying("RESOURCE_EXHAUSTED"))
	if _, err := ask(withPatience(t), c); err != nil {
		t.Fatal(err)
	}
	for calls := int64(2); a.Load() < 2; calls++ { // until a deadline is after the server's answer
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond<<calls)
		_, err := ask(ctx, c)
		cancel()
		code, n := status.Code(err), a.Load()
		if code != codes.DeadlineExceeded && code != codes.ResourceExhausted || n > calls {
			t.Errorf("%v; %d calls have come %d times to the server", err, calls, n)
		}
	}
}

// A server that does not read what a denied call still sends is understood all the same.
func TestLargeCalls(t *testing.T) {
	url, a := newHTTP(t, nethttp.New(core.PerMinute(1), core.ByIP())(connectHandlers()))
	c := dial(t, strings.TrimPrefix(url, "http://"), retrying("UNAVAILABLE"))
	if _, err := ask(withPatience(t), c); err != nil {
		t.Fatal(err)
	}
	large := &text{Value: strings.Repeat("x", 3<<20)}
	for range 20 {
		expectExhausted(t, c.Invoke(withPatience(t), callMethod, large, new(text)))
	}
	s, err := c.NewStream(withPatience(t), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streamMethod)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		err = s.SendMsg(large)
	}
	expectExhausted(t, s.RecvMsg(new(text)))
	a.expect(t, 22)
}

// gzipAll compresses all that is written, as simple middleware does.
func gzipAll(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close()
		h.ServeHTTP(compressed{w, z}, r)
	})
}

type compressed struct {
	http.ResponseWriter
	to io.Writer
}

func (c compressed) Write(b []byte) (int, error) { return c.to.Write(b) }

func TestBehindCompression(t *testing.T) {
	for _, opts := range wireClients {
		for _, two := range []bool{false, true} {
			url, a := newHTTP(t, gzipAll(nethttp.New(core.PerMinute(1), core.ByIP())(connectHandlers())))
			ctx := withPatience(t)
			call := connect.NewClient[text, text](client(t, two), url+callMethod, opts...)
			call.CallUnary(ctx, connect.NewRequest(&text{Value: "x"})) // which is compressed twice
			_, err := call.CallUnary(ctx, connect.NewRequest(&text{Value: "x"}))
			expectConnect(t, err)
			a.expect(t, 2)
		}
	}
}
