// Package grpclimit is sash for grpc-go: exact sliding-window rate limiting of a gRPC server, as interceptors.
//
//	limiter, err := core.New(core.PerMinute(100), core.ByIP())
//	// ...
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpclimit.Unary(limiter)),
//		grpc.ChainStreamInterceptor(grpclimit.Stream(limiter)),
//	)
//
// A denied call ends with codes.ResourceExhausted and a RetryInfo. A stream counts once, when it begins, unless
// [StreamMessages] counts its messages. Callbacks take the call's [context.Context]. [core.ByHeader] reads the metadata
// of the call.
//
// Handlers of connect-go are net/http handlers, and so is a grpc.Server behind its ServeHTTP: for these use package
// nethttp. A limiter there and one here share a quota if they have the same store and the same name (core.WithName).
package grpclimit

import (
	"context"
	"errors"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

// Unary limits calls with one request and one response. It panics if the limiter is nil, or if its callbacks are
// written for a framework.
//
// The fields ratelimit and ratelimit-policy are in the header of a call that succeeds, and in the trailer of one that
// fails, because clients do not retry a call after its header has arrived.
func Unary(l *core.Limiter) grpc.UnaryServerInterceptor {
	lim := bind(l)
	return func(
		ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
	) (resp any, err error) {
		c := newCall(ctx, info.FullMethod, callWriter{ctx})
		defer func() { c.writeFields(err) }()
		d, err := lim.admit(c)
		if err == nil {
			ctx, _ = d.Context(c.ctx)
			err = errPanicked // unless next returns
			d.Serve(func() int {
				resp, err = next(ctx, req)
				return httpStatus(err)
			})
		}
		return resp, err
	}
}

// errPanicked is what a call has ended with whose handler has panicked, until an interceptor answers that.
var errPanicked = errors.New("sash: the handler has panicked")

// Stream limits streams, as [Unary] does other calls. A stream counts once, and holds its permit of [core.InFlight]
// until its handler ends.
func Stream(l *core.Limiter) grpc.StreamServerInterceptor { return streams(bind(l), nil) }

// StreamMessages limits streams, as [Stream] does, and each message that the client sends on them takes what a call
// takes; the first one is paid when the stream begins. The server's RecvMsg of a message that is denied returns
// codes.ResourceExhausted and a RetryInfo, which a handler returns. A message counts when it is received, so one that
// the handler has not asked for is neither counted nor kept in memory beyond the flow control of HTTP/2.
//
// [core.WithRefund] is asked once, when the handler has ended, and gives back what the stream has taken at its
// beginning.
func StreamMessages(l *core.Limiter) grpc.StreamServerInterceptor {
	return streams(bind(l), core.Decision.Again)
}

// StreamMessagesWait is [StreamMessages] in which RecvMsg waits until there is room for a message, as
// [core.Limiter.Wait] does, so that a client is slowed down in place of being refused. A message that would wait longer
// than the call lasts is denied at once.
func StreamMessagesWait(l *core.Limiter) grpc.StreamServerInterceptor {
	return streams(bind(l), core.Decision.WaitAgain)
}

// again decides about one more message.
type again func(core.Decision, context.Context) (core.Decision, error)

// streams limits streams, and unless again is nil, each of their messages but the first.
func streams(lim *limiter, again again) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
		c := newCall(ss.Context(), info.FullMethod, ss)
		defer func() { c.writeFields(err) }()
		d, err := lim.admit(c)
		if err == nil {
			ctx, _ := d.Context(c.ctx)
			err = errPanicked // unless next returns
			d.Serve(func() int {
				s := &stream{ServerStream: ss, ctx: ctx, call: c}
				if again != nil {
					s.admit = func() error { return lim.admitAgain(c, d, again) }
				}
				err = next(srv, s)
				return httpStatus(err)
			})
		}
		return err
	}
}

// WithDeny makes the error of denied calls, in place of codes.ResourceExhausted. If the function returns nil or
// [core.Decision.Err], the limiter makes the error. Such a limiter may also be used with net/http, where the function
// is not called.
func WithDeny(f func(context.Context, core.Decision) error) core.Option {
	return core.OnDeny[context.Context](f)
}

// WithError makes the error of calls that could not be decided: no key, no store. If the function returns nil or its
// error, the limiter makes the error. Do not send the error's text to clients.
func WithError(f func(context.Context, error) error) core.Option {
	return core.OnError[context.Context](f)
}

// ByMethod is the call's full method, such as "/grpc.health.v1.Health/Check".
func ByMethod() core.Key {
	return core.By(func(ctx context.Context) (string, error) {
		method, ok := grpc.Method(ctx)
		if !ok {
			return "", core.ErrNoKey
		}
		return "method " + method, nil
	})
}

// limiter is a limiter with what answers for it.
type limiter struct {
	*core.Limiter

	deny func(context.Context, core.Decision) error
	fail func(context.Context, error) error
}

func bind(l *core.Limiter) *limiter {
	deny, fail := adapter.Bound(core.Bind[context.Context](l,
		func(_ context.Context, d core.Decision) error { return d.Err() },
		func(_ context.Context, err error) error { return err }))
	return &limiter{l, deny, fail}
}

// admit decides about a call. An error is what the call ends with. grpc-go does not survive a panic, so none of a
// callback goes on.
func (l *limiter) admit(c *call) (d core.Decision, err error) {
	err = adapter.Guard(func() (err error) { // of http.ErrAbortHandler, which Check passes on behind ServeHTTP
		d, err = l.Check(c)
		return err
	})
	d.SetHeaders(c.fields)
	switch {
	case err != nil:
		return d, l.refuse(c, err, func() error { return l.fail(c.ctx, err) })
	case !d.Allowed:
		return d, l.refuse(c, d.Err(), func() error { return l.deny(c.ctx, d) })
	}
	return d, nil
}

// admitAgain decides about one more message of a stream.
func (l *limiter) admitAgain(c *call, d core.Decision, again again) error {
	next, err := again(d, c.ctx)
	switch {
	case err == nil && next.Allowed:
		return nil
	case next.Policy != "": // it was denied, perhaps since the wait is longer than the call
		return l.refuse(c, next.Err(), func() error { return l.deny(c.ctx, next) })
	case c.ctx.Err() != nil:
		return status.FromContextError(c.ctx.Err()).Err()
	}
	return l.refuse(c, err, func() error { return l.fail(c.ctx, err) })
}

// refuse returns the handler's error if it is one of its own, and otherwise that of the cause.
func (l *limiter) refuse(c *call, cause error, handler func() error) error {
	var err error
	panicked := adapter.Guard(func() error { err = handler(); return nil })
	switch {
	case panicked != nil:
		l.Report(c.ctx, panicked)
		return refusalOf(c, panicked)
	case err == nil, isRefusal(err, cause):
		return refusalOf(c, cause)
	}
	return err
}

// isRefusal reports whether a handler has returned d.Err() or cause, with no status of its own around it.
func isRefusal(err, cause error) bool {
	if hasStatus(err) && !hasStatus(cause) {
		return false
	}
	return errors.As(err, new(*core.LimitedError)) || errors.Is(err, cause)
}

func hasStatus(err error) bool { return errors.As(err, new(interface{ GRPCStatus() *status.Status })) }

// refusal is what a refused call ends with. Interceptors in front of the limiter find the cause in it, such as a
// [*core.LimitedError]; clients get the status.
type refusal struct {
	status *status.Status
	cause  error
}

func (r *refusal) Error() string              { return r.status.Err().Error() }
func (r *refusal) GRPCStatus() *status.Status { return r.status }
func (r *refusal) Unwrap() error              { return r.cause }

func refusalOf(c *call, cause error) error {
	p := core.ProblemOf(cause)
	code, _ := p.Code()
	s := status.New(codes.Code(code), p.Message())
	if delay := p.Delay(); delay > 0 {
		if detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)}); err == nil {
			s = detailed
		}
	}
	if pushback := p.Pushback(); pushback != "" {
		c.fields.Set("grpc-retry-pushback-ms", pushback)
	}
	if p.RetryAfter > 0 {
		c.fields.Set("retry-after", strconv.FormatInt(p.RetryAfter, 10))
	}
	return &refusal{s, cause}
}
