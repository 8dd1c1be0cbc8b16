package grpclimit

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/sashlimit/sash/core/adapter"
)

// call shows a call to core, and writes the quota to the call.
type call struct {
	ctx    context.Context
	method string
	fields *fields

	// writer is nil for a limiter behind another one, which writes the fields of both.
	writer  writer
	written sync.Once
}

// writer is what header and trailer of a call are written to. A grpc.ServerStream is one.
type writer interface {
	SetHeader(md metadata.MD) error
	SetTrailer(md metadata.MD)
}

// callWriter writes header and trailer of a call that is no stream. It does not if its context is not that of a
// server, as in a test.
type callWriter struct{ ctx context.Context }

func (w callWriter) SetHeader(md metadata.MD) error { return grpc.SetHeader(w.ctx, md) }
func (w callWriter) SetTrailer(md metadata.MD)      { _ = grpc.SetTrailer(w.ctx, md) }

type fieldsKey struct{}

// newCall returns a call whose context limiters behind this one know it by.
func newCall(ctx context.Context, method string, w writer) *call {
	if outer, ok := ctx.Value(fieldsKey{}).(*fields); ok {
		return &call{ctx: ctx, method: method, fields: outer}
	}
	f := &fields{metadata.MD{}}
	return &call{ctx: context.WithValue(ctx, fieldsKey{}, f), method: method, fields: f, writer: w}
}

// writeFields writes the fields once: to the header before it is sent if the call has succeeded so far, and otherwise
// to the trailer. With a header of its own, clients would consider the call answered, and never retry it.
func (c *call) writeFields(err error) {
	c.written.Do(func() {
		if c.writer == nil || len(c.fields.md) == 0 {
			return
		}
		if err != nil || c.writer.SetHeader(c.fields.md) != nil { // the handler has sent the header
			c.writer.SetTrailer(c.fields.md)
		}
	})
}

func (c *call) Context() context.Context       { return c.ctx }
func (c *call) SetContext(ctx context.Context) { c.ctx = ctx }
func (c *call) Value(key any) any              { return c.ctx.Value(key) }
func (c *call) Native() any                    { return c.ctx }
func (c *call) Header(name string) []string {
	return metadata.ValueFromIncomingContext(c.ctx, strings.ToLower(name))
}

// Gone reports whether the caller has left, or has set a deadline that is over.
func (c *call) Gone() bool { return c.ctx.Err() != nil }

func (c *call) Peer() adapter.Peer {
	p, ok := peer.FromContext(c.ctx)
	if !ok {
		return adapter.Peer{}
	}
	return adapter.PeerAddr(p.Addr)
}

func (c *call) Target() adapter.Target {
	t := adapter.Target{Method: http.MethodPost, Path: c.method}
	if host := c.Header(":authority"); len(host) > 0 {
		t.Host = host[0]
	}
	return t
}

// fields are what the limiters of a call tell its caller.
type fields struct{ md metadata.MD }

func (f *fields) Get(name string) string { return strings.Join(f.md.Get(name), ", ") }
func (f *fields) Set(name, value string) {
	if name != "Cache-Control" { // nobody keeps an answer of gRPC, and net/http takes it for an invalid trailer
		f.md.Set(name, value)
	}
}

func (f *fields) Del(name string) { f.md.Delete(name) }

// stream is what the handler of a stream gets.
type stream struct {
	grpc.ServerStream

	ctx   context.Context
	call  *call
	admit func() error // decides about a message, or nil
	begun bool         // a message was received
}

func (s *stream) Context() context.Context { return s.ctx }

// RecvMsg receives a message. The first one was paid when the stream began.
func (s *stream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if first := !s.begun; first || s.admit == nil {
		s.begun = true
		return nil
	}
	return s.admit()
}

func (s *stream) SendHeader(md metadata.MD) error {
	s.call.writeFields(nil)
	return s.ServerStream.SendHeader(md)
}

func (s *stream) SendMsg(m any) error {
	s.call.writeFields(nil)
	return s.ServerStream.SendMsg(m)
}

// statuses are those of google.rpc.Code.
var statuses = [...]int{
	codes.OK:                 http.StatusOK,
	codes.Canceled:           adapter.StatusClientClosedRequest,
	codes.Unknown:            http.StatusInternalServerError,
	codes.InvalidArgument:    http.StatusBadRequest,
	codes.DeadlineExceeded:   http.StatusGatewayTimeout,
	codes.NotFound:           http.StatusNotFound,
	codes.AlreadyExists:      http.StatusConflict,
	codes.PermissionDenied:   http.StatusForbidden,
	codes.ResourceExhausted:  http.StatusTooManyRequests,
	codes.FailedPrecondition: http.StatusBadRequest,
	codes.Aborted:            http.StatusConflict,
	codes.OutOfRange:         http.StatusBadRequest,
	codes.Unimplemented:      http.StatusNotImplemented,
	codes.Internal:           http.StatusInternalServerError,
	codes.Unavailable:        http.StatusServiceUnavailable,
	codes.DataLoss:           http.StatusInternalServerError,
	codes.Unauthenticated:    http.StatusUnauthorized,
}

// httpStatus is what core.WithRefund is told of a handler's error.
func httpStatus(err error) int {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err) // as grpc-go does
	}
	if code := int(s.Code()); code < len(statuses) {
		return statuses[code]
	}
	return http.StatusInternalServerError
}

var _ adapter.Targeter = (*call)(nil)
