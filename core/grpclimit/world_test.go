package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/grpclimit"
)

// A service with one call and one stream of texts.
const (
	callMethod   = "/sash.test.Echo/Call"
	streamMethod = "/sash.test.Echo/Stream"
)

type text = wrapperspb.StringValue

// echo is what a server does. Nil functions answer with what they get.
type echo struct {
	call   func(context.Context, *text) (*text, error)
	stream func(grpc.ServerStream) error
}

func (e *echo) Call(ctx context.Context, in *text) (*text, error) {
	if e.call != nil {
		return e.call(ctx, in)
	}
	return in, nil
}

func (e *echo) Stream(s grpc.ServerStream) error {
	if e.stream != nil {
		return e.stream(s)
	}
	for {
		in := new(text)
		if err := s.RecvMsg(in); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.SendMsg(in); err != nil {
			return err
		}
	}
}

// description is what protoc would generate.
var description = grpc.ServiceDesc{
	ServiceName: "sash.test.Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Call",
		Handler: func(
			srv any, ctx context.Context, decode func(any) error, i grpc.UnaryServerInterceptor,
		) (any, error) {
			in := new(text)
			if err := decode(in); err != nil {
				return nil, err
			}
			call := func(ctx context.Context, in any) (any, error) { return srv.(*echo).Call(ctx, in.(*text)) }
			if i == nil {
				return call(ctx, in)
			}
			return i(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: callMethod}, call)
		},
	}},
	Streams: []grpc.StreamDesc{{
		StreamName: "Stream", ServerStreams: true, ClientStreams: true,
		Handler: func(srv any, s grpc.ServerStream) error { return srv.(*echo).Stream(s) },
	}},
}

// arrived counts the calls that come to a server, whatever becomes of them.
type arrived struct{ atomic.Int64 }

func (a *arrived) unary(
	ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (_ any, err error) {
	a.Add(1)
	defer recoverTo(&err)
	return next(ctx, req)
}

func (a *arrived) stream(
	srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler,
) (err error) {
	a.Add(1)
	defer recoverTo(&err)
	return next(srv, s)
}

// recoverTo is what an interceptor does that recovers panics.
func recoverTo(err *error) {
	if recover() != nil {
		*err = status.Error(codes.Internal, "")
	}
}

func (a *arrived) http(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.Add(1)
		h.ServeHTTP(w, r)
	})
}

// expect checks how many calls have come since the last time.
func (a *arrived) expect(t *testing.T, want int64) {
	t.Helper()
	if n := a.Swap(0); n != want {
		t.Errorf("%d calls have come to the server, want %d", n, want)
	}
}

// newGRPC starts a server of grpc-go behind limiters and returns a client.
func newGRPC(t *testing.T, e *echo, limiters []*core.Limiter, opts ...grpc.DialOption) (*grpc.ClientConn, *arrived) {
	t.Helper()
	a := new(arrived)
	unary, stream := []grpc.UnaryServerInterceptor{a.unary}, []grpc.StreamServerInterceptor{a.stream}
	for _, l := range limiters {
		unary, stream = append(unary, grpclimit.Unary(l)), append(stream, grpclimit.Stream(l))
	}
	return serve(t, e, opts, grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(stream...)), a
}

// serve starts a server of grpc-go and returns a client.
func serve(t *testing.T, e *echo, dials []grpc.DialOption, opts ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	server := grpc.NewServer(opts...)
	server.RegisterService(&description, e)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return dial(t, l.Addr().String(), dials...)
}

// dial returns a client of grpc-go.
func dial(t *testing.T, address string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	opts = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, opts...)
	client, err := grpc.NewClient(address, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// retrying is a client's service config that retries calls which end with a code, four times.
func retrying(code string) grpc.DialOption {
	return grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5,
		"initialBackoff": "0.001s", "maxBackoff": "0.002s", "backoffMultiplier": 1,
		"retryableStatusCodes": ["` + code + `"]}}]}`)
}

// newHTTP serves a handler over HTTP/1.1 and HTTP/2, both without TLS.
func newHTTP(t *testing.T, h http.Handler) (url string, a *arrived) {
	t.Helper()
	a = new(arrived)
	server := httptest.NewUnstartedServer(a.http(h))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL, a
}

// client returns a client that speaks one version of HTTP.
func client(t *testing.T, two bool) *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!two)
	transport.Protocols.SetUnencryptedHTTP2(two)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// connectHandlers are those of connect-go for the service, which speak all protocols.
func connectHandlers() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(callMethod, connect.NewUnaryHandler(callMethod,
		func(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
			return connect.NewResponse(r.Msg), nil
		}, connect.WithIdempotency(connect.IdempotencyNoSideEffects)))
	mux.Handle(streamMethod, connect.NewBidiStreamHandler(streamMethod,
		func(_ context.Context, s *connect.BidiStream[text, text]) error {
			for {
				in, err := s.Receive()
				if errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
				if err := s.Send(in); err != nil {
					return err
				}
			}
		}))
	return mux
}

func newLimiter(t *testing.T, p core.Policy, k core.Key, opts ...core.Option) *core.Limiter {
	t.Helper()
	l, err := core.New(p, k, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// patience is longer than anything takes unless it hangs.
const patience = 30 * time.Second

func withPatience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// ask calls the server by grpc-go, and returns all that the caller is told.
func ask(ctx context.Context, client *grpc.ClientConn) (md metadata.MD, err error) {
	var header, trailer metadata.MD
	err = client.Invoke(ctx, callMethod, &text{Value: "x"}, new(text), grpc.Header(&header), grpc.Trailer(&trailer))
	return metadata.Join(header, trailer), err
}

// open opens a stream, sends a text and waits for what the server answers.
func open(ctx context.Context, client *grpc.ClientConn) (grpc.ClientStream, error) {
	desc := grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	s, err := client.NewStream(ctx, &desc, streamMethod)
	if err != nil {
		return nil, err
	}
	if err := s.SendMsg(&text{Value: "x"}); err != nil && !errors.Is(err, io.EOF) {
		return s, err
	}
	return s, s.RecvMsg(new(text))
}

// retryDelay returns what the RetryInfo of an error says, or 0.
func retryDelay(err error) time.Duration {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

var seconds = regexp.MustCompile("t=[0-9]+")

// rateLimit returns the field RateLimit with times of a minute or an hour, less what the machine may have taken until
// then, as whole ones.
func rateLimit(md metadata.MD) string {
	return seconds.ReplaceAllStringFunc(strings.Join(md["ratelimit"], " and "), func(s string) string {
		t, _ := time.ParseDuration(s[len("t="):] + "s")
		for _, window := range []time.Duration{time.Minute, time.Hour} {
			if t <= window && t > window-patience {
				return fmt.Sprintf("t=%.0f", window.Seconds())
			}
		}
		return s
	})
}

// expectExhausted checks the error of a denied call, which is within a minute of the first.
func expectExhausted(t *testing.T, err error) {
	t.Helper()
	s := status.Convert(err)
	if delay := retryDelay(err); s.Code() != codes.ResourceExhausted || delay <= 0 || delay > time.Minute {
		t.Errorf("%v, %v; retry after %v", s.Code(), s.Message(), delay)
	}
}

// expectFields checks what a caller is told of a denial by one a minute.
func expectFields(t *testing.T, md metadata.MD) {
	t.Helper()
	one := func(name string) string { return strings.Join(md[name], " and ") }
	pushback, err := strconv.Atoi(one("grpc-retry-pushback-ms"))
	seconds, err2 := strconv.Atoi(one("retry-after"))
	if errors.Join(err, err2) != nil || pushback <= 0 || pushback > 60_000 || (pushback+999)/1000 != seconds ||
		one("ratelimit") != fmt.Sprintf(`"1-per-minute";r=0;t=%d`, seconds) ||
		one("ratelimit-policy") != `"1-per-minute";q=1;w=60` {
		t.Errorf("metadata %v", md)
	}
}
