package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/grpclimit"
	"github.com/sashlimit/sash/nethttp"
)

var perMinute = core.PerMinute(1)

// overHTTP has net/http serve a server of grpc-go behind a limiter, and returns a client that retries Unavailable.
func overHTTP(t *testing.T, l *core.Limiter) (*grpc.ClientConn, *arrived) {
	t.Helper()
	server := grpc.NewServer(grpc.UnaryInterceptor(grpclimit.Unary(l)), grpc.StreamInterceptor(grpclimit.Stream(l)))
	server.RegisterService(&description, new(echo))
	url, a := newHTTP(t, server)
	return dial(t, strings.TrimPrefix(url, "http://"), retrying("UNAVAILABLE")), a
}

// A denied call comes to the server once, although the client retries Unavailable, whoever serves. A problem document
// would make it retry.
func TestDenied(t *testing.T) {
	for name, start := range map[string]func(*testing.T, *core.Limiter) (*grpc.ClientConn, *arrived){
		"grpc-go": func(t *testing.T, l *core.Limiter) (*grpc.ClientConn, *arrived) {
			return newGRPC(t, new(echo), []*core.Limiter{l}, retrying("UNAVAILABLE"))
		},
		"net/http": overHTTP,
		"connect-go": func(t *testing.T, l *core.Limiter) (*grpc.ClientConn, *arrived) {
			url, a := newHTTP(t, nethttp.From(l)(connectHandlers()))
			return dial(t, strings.TrimPrefix(url, "http://"), retrying("UNAVAILABLE")), a
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := withPatience(t)
			c, a := start(t, newLimiter(t, perMinute, core.ByIP()))
			var header metadata.MD
			if err := c.Invoke(ctx, callMethod, new(text), new(text), grpc.Header(&header)); err != nil {
				t.Fatal(err)
			}
			if rateLimit(header) != `"1-per-minute";r=0;t=60` {
				t.Errorf("header %v", header)
			}
			a.expect(t, 1)
			md, err := ask(ctx, c)
			expectExhausted(t, err)
			expectFields(t, md)
			a.expect(t, 1)
			s, err := open(ctx, c)
			expectExhausted(t, err)
			expectFields(t, s.Trailer())
			a.expect(t, 1)
		})
	}
}

// A stream counts once, whatever is sent, and tells of the quota when it sends for the first time.
func TestStream(t *testing.T) {
	ctx := withPatience(t)
	c, a := newGRPC(t, new(echo), []*core.Limiter{newLimiter(t, perMinute, core.ByIP())})
	s, err := open(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	header, err := s.Header()
	if err != nil || rateLimit(header) != `"1-per-minute";r=0;t=60` {
		t.Errorf("header %v, %v", header, err)
	}
	for range 3 {
		if err := errors.Join(s.SendMsg(new(text)), s.RecvMsg(new(text))); err != nil {
			t.Error(err)
		}
	}
	s.CloseSend()
	if err := s.RecvMsg(new(text)); !errors.Is(err, io.EOF) || len(s.Trailer()) > 0 {
		t.Errorf("%v, trailer %v", err, s.Trailer())
	}
	a.expect(t, 1)
}

// What the handler returns stays as it is, and clients can retry it: the fields are in the trailer.
func TestErrorsOfHandlers(t *testing.T) {
	ctx, failures := withPatience(t), 0
	fail := func() error {
		if failures--; failures >= 0 {
			return status.Error(codes.Unavailable, "down")
		}
		return nil
	}
	e := &echo{
		call:   func(_ context.Context, in *text) (*text, error) { return in, fail() },
		stream: func(s grpc.ServerStream) error { return errors.Join(fail(), s.RecvMsg(new(text))) },
	}
	limiters := []*core.Limiter{newLimiter(t, core.PerMinute(9), core.ByIP())}
	c, a := newGRPC(t, e, limiters, retrying("UNAVAILABLE"))
	failures = 3
	md, err := ask(ctx, c)
	if err != nil || rateLimit(md) != `"9-per-minute";r=5;t=60` {
		t.Errorf("%v, metadata %v", err, md)
	}
	a.expect(t, 4)
	failures = 99
	md, err = ask(ctx, c)
	if status.Code(err) != codes.Unavailable || !strings.HasSuffix(err.Error(), "down") || len(md["ratelimit"]) != 1 {
		t.Errorf("%v, metadata %v", err, md)
	}
	a.expect(t, 5)
}

// HTTP and RPC share one quota by a store and a name.
func TestSharedQuota(t *testing.T) {
	ctx := withPatience(t)
	opts := []core.Option{core.WithStore(core.NewMemoryStore()), core.WithName("api")}
	url, _ := newHTTP(t, nethttp.New(core.PerMinute(2), core.ByIP(), opts...)(http.NotFoundHandler()))
	c, _ := newGRPC(t, new(echo), []*core.Limiter{newLimiter(t, core.PerMinute(2), core.ByIP(), opts...)})
	get := func(want int) {
		t.Helper()
		r, err := client(t, false).Get(url)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("status %d, want %d", r.StatusCode, want)
		}
	}
	get(404)
	if md, err := ask(ctx, c); err != nil || !strings.Contains(fmt.Sprint(md["ratelimit"]), "r=0") {
		t.Errorf("%v, %v", err, md)
	}
	get(429)
	_, err := ask(ctx, c)
	expectExhausted(t, err)
}

// A slot is free when the handler has ended, in whatever way.
func TestInFlight(t *testing.T) {
	var began, end = make(chan bool), make(chan func() error)
	wait := func(ctx context.Context) error {
		began <- true
		select {
		case f := <-end:
			return f()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	e := &echo{
		call:   func(ctx context.Context, in *text) (*text, error) { return in, wait(ctx) },
		stream: func(s grpc.ServerStream) error { return wait(s.Context()) },
	}
	c, _ := newGRPC(t, e, []*core.Limiter{newLimiter(t, core.InFlight(1), core.ByIP())})
	one := func(ctx context.Context) error { _, err := ask(ctx, c); return err }
	many := func(ctx context.Context) error { _, err := open(ctx, c); return err }
	for _, test := range []struct {
		desc string
		call func(context.Context) error
		end  func() error // nil if the caller leaves
		code codes.Code
	}{
		{"a call returns", one, func() error { return nil }, codes.OK},
		{"a call fails", one, func() error { return status.Error(codes.NotFound, "") }, codes.NotFound},
		{"a call panics", one, func() error { panic("boom") }, codes.Internal},
		{"a call's caller leaves", one, nil, codes.Canceled},
		{"a stream returns", many, func() error { return status.Error(codes.Aborted, "") }, codes.Aborted},
		{"a stream's caller leaves", many, nil, codes.Canceled},
	} {
		t.Run(test.desc, func(t *testing.T) {
			ctx, cancel := context.WithCancel(withPatience(t))
			defer cancel()
			done := make(chan error)
			go func() { done <- test.call(ctx) }()
			<-began
			for _, call := range []func(context.Context) error{one, many} {
				err := call(withPatience(t))
				if s := status.Convert(err); s.Code() != codes.ResourceExhausted || len(s.Details()) > 0 ||
					s.Message() != "Quota Exceeded: Try again when another request has ended." {
					t.Errorf("at the same time: %v", err)
				}
			}
			if md, _ := ask(withPatience(t), c); len(md["grpc-retry-pushback-ms"]) > 0 {
				t.Errorf("metadata %v", md)
			}
			if test.end != nil {
				end <- test.end
			} else {
				cancel()
			}
			if err := <-done; status.Code(err) != test.code {
				t.Errorf("%v, want %v", err, test.code)
			}
			// The slot is free before the caller has its answer, and soon after one has left.
			next := make(chan error)
			go func() { next <- untilServed(withPatience(t), one, test.end == nil) }()
			<-began
			end <- func() error { return nil }
			if err := <-next; err != nil {
				t.Error(err)
			}
		})
	}
}

// untilServed calls again while the call is denied, if that is expected.
func untilServed(ctx context.Context, call func(context.Context) error, again bool) error {
	for {
		if err := call(ctx); !again || status.Code(err) != codes.ResourceExhausted {
			return err
		}
	}
}

// Callbacks get the call's context, and keys find its method, metadata and peer.
func TestCallbacks(t *testing.T) {
	type keyOfUser struct{}
	user := core.By(func(ctx context.Context) (string, error) {
		return strings.Join(metadata.ValueFromIncomingContext(ctx, "user"), ""), nil
	})
	paid := func(ctx context.Context) bool { return len(metadata.ValueFromIncomingContext(ctx, "paid")) > 0 }
	opts := []core.Option{
		core.WithSkip(func(ctx context.Context) bool {
			return len(metadata.ValueFromIncomingContext(ctx, "skip")) > 0
		}),
		core.WithCost(func(ctx context.Context) int {
			if paid(ctx) {
				return 2
			}
			return 1
		}),
		core.WithDecisionInContext(),
	}
	policy := core.LimitBy(func(ctx context.Context) core.Limits {
		if paid(ctx) {
			return core.Limits{core.PerMinute(20)}
		}
		return core.Limits{core.PerMinute(4)}
	})
	var left []int
	note := func(ctx context.Context) {
		if d, ok := core.DecisionFrom(ctx); ok {
			left = append(left, d.Remaining)
		}
	}
	e := &echo{
		call:   func(ctx context.Context, in *text) (*text, error) { note(ctx); return in, nil },
		stream: func(s grpc.ServerStream) error { note(s.Context()); return s.SendMsg(new(text)) },
	}
	header := core.ByHeader("X-API-Key", core.Unverified)
	key := core.First(user, header, core.ByValue(keyOfUser{}), core.Join(core.ByIP(), grpclimit.ByMethod()))
	c, _ := newGRPC(t, e, []*core.Limiter{newLimiter(t, policy, key, opts...)})
	for _, test := range []struct {
		stream bool
		md     []string
		want   string
	}{
		{false, nil, `"4-per-minute";r=3;t=60`},
		{false, nil, `"4-per-minute";r=2;t=60`},
		{true, nil, `"4-per-minute";r=3;t=60`}, // another method
		{false, []string{"user", "ann"}, `"4-per-minute";r=3;t=60`},
		{true, []string{"user", "ann"}, `"4-per-minute";r=2;t=60`},
		{false, []string{"x-api-key", "7"}, `"4-per-minute";r=3;t=60`},
		{false, []string{"X-API-Key", "7"}, `"4-per-minute";r=2;t=60`},
		{false, []string{"user", "ann", "paid", ""}, `"20-per-minute";r=16;t=60`},
		{true, []string{"skip", ""}, ""},
	} {
		ctx := metadata.AppendToOutgoingContext(withPatience(t), test.md...)
		var md metadata.MD
		var err error
		if test.stream {
			var s grpc.ClientStream
			if s, err = open(ctx, c); err == nil {
				md, err = s.Header()
			}
		} else {
			md, err = ask(ctx, c)
		}
		if got := rateLimit(md); got != test.want || err != nil {
			t.Errorf("%v: %s, %v; want %s", test.md, got, err, test.want)
		}
	}
	if want := []int{3, 2, 3, 3, 2, 3, 2, 16, 0}; !slices.Equal(left, want) {
		t.Errorf("handlers have seen %v left, want %v", left, want)
	}
}

// What a key leaves in the context, as those of jwtkey leave claims, is there for callbacks and the handler.
func TestContextOfKeys(t *testing.T) {
	type plan struct{}
	key := core.KeyOf("plan", func(r adapter.Request) (scope, text string, err error) {
		if s, ok := r.(adapter.ContextSetter); ok {
			s.SetContext(context.WithValue(r.Context(), plan{}, "pro"))
		}
		return "", "ann", nil
	})
	var seen []any
	note := func(ctx context.Context) { seen = append(seen, ctx.Value(plan{})) }
	policy := core.LimitBy(func(ctx context.Context) core.Limits {
		note(ctx)
		return core.Limits{core.PerMinute(9)}
	})
	refund := core.WithRefund(func(ctx context.Context, _ int) bool {
		note(ctx)
		return false
	})
	e := &echo{
		call:   func(ctx context.Context, in *text) (*text, error) { note(ctx); return in, nil },
		stream: func(s grpc.ServerStream) error { note(s.Context()); return s.SendMsg(new(text)) },
	}
	c, _ := newGRPC(t, e, []*core.Limiter{newLimiter(t, policy, key, refund)})
	_, err := ask(withPatience(t), c)
	_, err2 := open(withPatience(t), c)
	if want := []any{"pro", "pro", "pro", "pro", "pro", "pro"}; !slices.Equal(seen, want) || err != nil || err2 != nil {
		t.Errorf("seen %v, %v, %v", seen, err, err2)
	}
}

// What rules match is the full method.
func TestTarget(t *testing.T) {
	var seen []string
	key := core.KeyOf("target", func(r adapter.Request) (scope, text string, err error) {
		target := r.(adapter.Targeter).Target()
		seen = append(seen, target.Method+" "+target.Host+" "+target.Path)
		return "", "x", nil
	})
	c, _ := newGRPC(t, new(echo), []*core.Limiter{newLimiter(t, perMinute, key)}, grpc.WithAuthority("api.example:81"))
	ask(withPatience(t), c)
	open(withPatience(t), c)
	want := []string{"POST api.example:81 " + callMethod, "POST api.example:81 " + streamMethod}
	if !slices.Equal(seen, want) {
		t.Errorf("%q, want %q", seen, want)
	}
}

// A refusal's code says why, and its text contains nothing of the error.
func TestRefusals(t *testing.T) {
	boom := errors.New("boom at 10.0.0.1:6379")
	failing := new(coretest.FakeStore)
	failing.Fail(boom)
	const internal = "Internal Server Error"
	for _, test := range []struct {
		desc     string
		key      core.Key
		opts     []core.Option
		code     codes.Code
		message  string
		pushback string
	}{
		{"no key", core.ByHeader("X-Missing", core.Unverified), nil,
			codes.InvalidArgument, "Bad Request: The request does not identify whose quota it uses.", ""},
		{"deny list", core.ByIP(), []core.Option{core.WithDenyList(core.ByIP(), "127.0.0.1")},
			codes.PermissionDenied, "Forbidden", ""},
		{"store", core.ByIP(), []core.Option{core.WithStore(failing), core.WithFailure(core.FailClosed)},
			codes.Unavailable, "Temporary Reduced Capacity: Try again in 1 second.", "1000"},
		{"cost", core.ByIP(), []core.Option{core.WithCost(func(context.Context) int { return 2 })},
			codes.ResourceExhausted,
			"Quota Exceeded: This request costs more than the whole quota, so it can never pass.", "-1"},
		{"error", core.By(func(context.Context) (string, error) { return "", boom }),
			nil, codes.Internal, internal, ""},
		{"error with a status", core.By(func(context.Context) (string, error) {
			return "", status.Error(codes.NotFound, "boom")
		}), nil, codes.Internal, internal, ""},
		{"panic", core.By(func(context.Context) (string, error) { panic("boom") }), nil, codes.Internal, internal, ""},
	} {
		t.Run(test.desc, func(t *testing.T) {
			c, a := newGRPC(t, new(echo), []*core.Limiter{newLimiter(t, perMinute, test.key, test.opts...)})
			md, err := ask(withPatience(t), c)
			s := status.Convert(err)
			if s.Code() != test.code || s.Message() != test.message ||
				strings.Join(md["grpc-retry-pushback-ms"], "") != test.pushback {
				t.Errorf("%v, metadata %v", err, md)
			}
			if retryDelay(err) > 0 != (test.pushback == "1000") {
				t.Errorf("%v", s.Details())
			}
			if _, err := open(withPatience(t), c); status.Code(err) != test.code {
				t.Errorf("stream: %v", err)
			}
			a.expect(t, 2)
		})
	}
}

// Handlers of refusals may answer, or leave it to the limiter; a panic does not end the process.
func TestHandlers(t *testing.T) {
	own := status.Error(codes.OutOfRange, "own")
	for _, test := range []struct {
		desc string
		f    func(cause error) error
		deny codes.Code
		fail codes.Code
	}{
		{"own", func(error) error { return own }, codes.OutOfRange, codes.OutOfRange},
		{"own around the cause", func(cause error) error {
			return fmt.Errorf("%w: %w", own, cause)
		}, codes.OutOfRange, codes.OutOfRange},
		{"another", func(error) error { return errors.New("another") }, codes.Unknown, codes.Unknown},
		{"the cause", func(cause error) error { return cause }, codes.ResourceExhausted, codes.InvalidArgument},
		{"around the cause", func(cause error) error { return fmt.Errorf("here: %w", cause) },
			codes.ResourceExhausted, codes.InvalidArgument},
		{"nil", func(error) error { return nil }, codes.ResourceExhausted, codes.InvalidArgument},
		{"panic", func(error) error { panic("boom") }, codes.Internal, codes.Internal},
	} {
		t.Run(test.desc, func(t *testing.T) {
			l := newLimiter(t, perMinute, core.ByHeader("User", core.Unverified),
				grpclimit.WithDeny(func(_ context.Context, d core.Decision) error { return test.f(d.Err()) }),
				grpclimit.WithError(func(_ context.Context, err error) error { return test.f(err) }))
			c, _ := newGRPC(t, new(echo), []*core.Limiter{l})
			ann := metadata.AppendToOutgoingContext(withPatience(t), "user", "ann")
			ask(ann, c)
			if md, err := ask(ann, c); status.Code(err) != test.deny || len(md["retry-after"]) != 1 {
				t.Errorf("denied: %v, metadata %v", err, md)
			}
			if _, err := ask(withPatience(t), c); status.Code(err) != test.fail {
				t.Errorf("without a key: %v", err)
			}
		})
	}
}

// Interceptors in front of the limiter find out why a call was refused.
func TestCause(t *testing.T) {
	unary := grpclimit.Unary(newLimiter(t, perMinute, core.Global()))
	stream := grpclimit.Stream(newLimiter(t, perMinute, core.ByIP()))
	var limited *core.LimitedError
	for i := range 2 {
		resp, err := unary(t.Context(), "in", &grpc.UnaryServerInfo{FullMethod: callMethod},
			func(context.Context, any) (any, error) { return "out", nil })
		if i == 0 && (resp != "out" || err != nil) || i > 0 && (resp != nil || !errors.As(err, &limited)) {
			t.Errorf("%v, %v", resp, err)
		}
	}
	err := stream(nil, fakeStream{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: streamMethod}, nil)
	if !errors.Is(err, core.ErrNoKey) || err.Error() != "rpc error: code = InvalidArgument desc = Bad Request: "+
		"The request does not identify whose quota it uses." {
		t.Error(err)
	}
}

// fakeStream is a stream from nowhere.
type fakeStream struct {
	grpc.ServerStream

	ctx context.Context
}

func (f fakeStream) Context() context.Context    { return f.ctx }
func (f fakeStream) SetHeader(metadata.MD) error { return nil }
func (f fakeStream) SetTrailer(metadata.MD)      {}

// Two limiters tell of both.
func TestSeveralLimiters(t *testing.T) {
	hour, minute := newLimiter(t, core.PerHour(9), core.ByIP()), newLimiter(t, core.PerMinute(2), core.ByIP())
	c, _ := newGRPC(t, new(echo), []*core.Limiter{hour, minute})
	policies := `"9-per-hour";q=9;w=3600, "2-per-minute";q=2;w=60`
	for i, want := range []string{
		`"9-per-hour";r=8;t=3600, "2-per-minute";r=1;t=60`, `"9-per-hour";r=7;t=3600, "2-per-minute";r=0;t=60`,
		`"2-per-minute";r=0;t=60`, `"2-per-minute";r=0;t=60`,
	} {
		var md metadata.MD
		if i%2 == 0 {
			md, _ = ask(withPatience(t), c)
		} else {
			s, _ := open(withPatience(t), c)
			header, _ := s.Header()
			md = metadata.Join(header, s.Trailer())
		}
		if rateLimit(md) != want || !slices.Equal(md["ratelimit-policy"], []string{policies}) {
			t.Errorf("call %d: %v, want %s", i+1, md, want)
		}
	}
	legacy := core.WithHeaders(core.HeadersLegacy)
	hour = newLimiter(t, core.PerHour(9), core.ByIP(), legacy)
	c, _ = newGRPC(t, new(echo), []*core.Limiter{hour, newLimiter(t, core.InFlight(1), core.ByIP(), legacy)})
	md, _ := ask(withPatience(t), c)
	if !slices.Equal(md["x-ratelimit-limit"], []string{"1"}) || md["x-ratelimit-reset"] != nil {
		t.Errorf("one in flight: %v", md)
	}
}

// A call whose handler has panicked has failed, if an interceptor in front of the limiter recovers that.
func TestHandlerPanics(t *testing.T) {
	e := &echo{
		call:   func(context.Context, *text) (*text, error) { panic("boom") },
		stream: func(grpc.ServerStream) error { panic("boom") },
	}
	c, _ := newGRPC(t, e, []*core.Limiter{newLimiter(t, core.PerMinute(100), core.ByIP())})
	md, err := ask(withPatience(t), c)
	if status.Code(err) != codes.Internal || rateLimit(md) != `"100-per-minute";r=99;t=60` {
		t.Errorf("%v, %v", err, md)
	}
	s, _ := open(withPatience(t), c)
	header, _ := s.Header()
	if len(header) > 0 || rateLimit(s.Trailer()) != `"100-per-minute";r=98;t=60` {
		t.Errorf("header %v, trailer %v", header, s.Trailer())
	}
}

// WithRefund gets the status that goes with the code.
func TestRefund(t *testing.T) {
	var asked []int
	l := newLimiter(t, core.PerMinute(100), core.ByIP(), core.WithRefund(func(_ context.Context, status int) bool {
		asked = append(asked, status)
		return status != http.StatusOK
	}))
	var answer error
	e := &echo{
		call:   func(_ context.Context, in *text) (*text, error) { return in, answer },
		stream: func(grpc.ServerStream) error { return answer },
	}
	c, _ := newGRPC(t, e, []*core.Limiter{l})
	want := []int{200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401, 500}
	for code := range want {
		asked, answer = nil, nil
		if code > 0 {
			answer = status.Error(codes.Code(code), "")
		}
		md, _ := ask(withPatience(t), c)
		open(withPatience(t), c)
		if !slices.Equal(asked, []int{want[code], want[code]}) {
			t.Errorf("%v: asked about %v, want %d", codes.Code(code), asked, want[code])
		}
		// Two are kept, of OK.
		if code > 0 && rateLimit(md) != `"100-per-minute";r=97;t=60` {
			t.Errorf("%v: %v", codes.Code(code), md)
		}
	}
	for _, plain := range []error{context.Canceled, context.DeadlineExceeded, io.ErrUnexpectedEOF} {
		answer = plain
		ask(withPatience(t), c)
	}
	if got := asked[len(asked)-3:]; !slices.Equal(got, []int{499, 504, 500}) {
		t.Errorf("asked about %v", got)
	}
}

// A caller cannot bring about a refund by leaving, or by a short deadline.
func TestRefundCallerGone(t *testing.T) {
	asked := make(chan int, 9)
	l := newLimiter(t, core.PerMinute(100), core.ByIP(), core.WithRefund(func(_ context.Context, status int) bool {
		asked <- status
		return status >= 500
	}))
	began := make(chan bool, 9)
	e := &echo{call: func(ctx context.Context, _ *text) (*text, error) {
		began <- true
		<-ctx.Done()
		return nil, status.Error(codes.Unavailable, "the database does not answer")
	}}
	c, _ := newGRPC(t, e, []*core.Limiter{l})
	ctx, cancel := context.WithCancel(withPatience(t))
	go func() {
		<-began
		cancel()
	}()
	ask(ctx, c)
	if status := <-asked; status != 499 {
		t.Errorf("asked about %d after the caller has left", status)
	}
	for d := 50 * time.Millisecond; len(began) == 0; d *= 2 { // until a deadline is after the handler's beginning
		short, cancel := context.WithTimeout(t.Context(), d)
		ask(short, c)
		cancel()
	}
	if status := <-asked; status != 499 {
		t.Errorf("asked about %d after the caller's deadline", status)
	}
}

// Where net/http serves, http.ErrAbortHandler in a callback is answered all the same.
func TestAbortOverHTTP(t *testing.T) {
	c, _ := overHTTP(t, newLimiter(t, perMinute, core.By(func(context.Context) (string, error) {
		panic(http.ErrAbortHandler)
	})))
	if _, err := ask(withPatience(t), c); status.Code(err) != codes.Internal {
		t.Error(err)
	}
}

// Mistakes are found at start-up.
func TestMistakes(t *testing.T) {
	foreign := newLimiter(t, perMinute, core.By(func(*http.Request) (string, error) { return "x", nil }))
	for _, l := range []*core.Limiter{nil, foreign} {
		for name, f := range map[string]func(){
			"Unary": func() { grpclimit.Unary(l) }, "Stream": func() { grpclimit.Stream(l) },
		} {
			func() {
				defer func() {
					if err, ok := recover().(error); !ok || !errors.As(err, new(*core.ConfigError)) {
						t.Errorf("%s: %v, want a ConfigError", name, err)
					}
				}()
				f()
			}()
		}
	}
}

// textAddr is an address of which only the text is known, as that of a peer behind ServeHTTP.
type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }

// Callers are told apart as clients of HTTP are, by metadata in place of header fields.
func TestClientIP(t *testing.T) {
	statuses := map[codes.Code]int{codes.OK: 200, codes.InvalidArgument: 400, codes.ResourceExhausted: 429}
	coretest.ClientIP(t, func(_ *testing.T, text func() string, l ...*core.Limiter) func(*http.Request) *http.Response {
		limit := grpclimit.Unary(l[0])
		return func(r *http.Request) *http.Response {
			from := &peer.Peer{Addr: textAddr(r.RemoteAddr)}
			if local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr); ok {
				from.Addr = local
			}
			md := metadata.MD{}
			for name, values := range r.Header {
				md.Append(name, values...)
			}
			ctx := metadata.NewIncomingContext(peer.NewContext(r.Context(), from), md)
			handler := func(context.Context, any) (any, error) { return text(), nil }
			_, err := limit(ctx, nil, &grpc.UnaryServerInfo{}, handler)
			return &http.Response{StatusCode: statuses[status.Code(err)]}
		}
	})
}

// A nested module imports no internal package of the root, because users mix versions of both.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	imports := string(out)
	if strings.Contains(imports, "sash/internal") || strings.Contains(imports, "core/internal") {
		t.Errorf("imports of grpclimit:\n%s", imports)
	}
}

// The page about RPC has what runs in Example.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/rpc.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	example := strings.ReplaceAll(string(source), "PerMinute(2)", "PerMinute(100)")
	found := 0
	for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		if !strings.Contains(block[1], "grpclimit.") {
			continue
		}
		found++
		indented := "\t" + strings.ReplaceAll(strings.TrimSpace(block[1]), "\n", "\n\t") + "\n"
		if !strings.Contains(example, indented) {
			t.Errorf("docs/rpc.md has a block that no example has:\n%s", indented)
		}
	}
	if found == 0 {
		t.Error("docs/rpc.md has no block of Go for grpc-go")
	}
}
