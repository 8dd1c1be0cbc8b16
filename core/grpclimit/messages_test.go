package grpclimit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/grpclimit"
)

// send sends a text and waits for what the server answers.
func send(s grpc.ClientStream) error {
	return errors.Join(s.SendMsg(&text{Value: "x"}), s.RecvMsg(new(text)))
}

// Each message of a stream counts once, the first one together with the stream, and the stream holds one permit.
func TestStreamMessages(t *testing.T) {
	l := newLimiter(t, core.Limits{core.PerHour(3), core.InFlight(1)}, core.ByIP())
	c := serve(t, new(echo), nil, grpc.StreamInterceptor(grpclimit.StreamMessages(l)))
	s, err := open(withPatience(t), c)
	for i := range 3 {
		if err != nil {
			t.Fatalf("message %d: %v", i+1, err)
		}
		err = send(s)
	}
	if delay := retryDelay(err); status.Code(err) != codes.ResourceExhausted || delay <= 0 || delay > time.Hour {
		t.Errorf("the fourth message: %v, retry after %v", err, delay)
	}
	if _, err := open(withPatience(t), c); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the next stream: %v", err)
	}
	if n := l.Stats().InFlight; n != 0 {
		t.Errorf("%d permits are held after the streams", n)
	}
}

// Messages wait for each other, unless the call ends before.
func TestStreamMessagesWait(t *testing.T) {
	const window = 300 * time.Millisecond
	l := newLimiter(t, core.Limit{Quota: 1, Window: window}, core.ByIP())
	c := serve(t, new(echo), nil, grpc.StreamInterceptor(grpclimit.StreamMessagesWait(l)))
	began := time.Now()
	s, err := open(withPatience(t), c)
	if err = errors.Join(err, send(s), send(s)); err != nil || time.Since(began) < 2*window {
		t.Errorf("three messages within %v: %v", time.Since(began), err)
	}

	l = newLimiter(t, core.PerHour(1), core.ByIP())
	begun, left := make(chan error, 1), make(chan error, 1)
	e := &echo{stream: func(s grpc.ServerStream) error {
		begun <- s.RecvMsg(new(text))
		err := s.RecvMsg(new(text))
		left <- err
		return err
	}}
	c = serve(t, e, nil, grpc.StreamInterceptor(grpclimit.StreamMessagesWait(l)))
	desc := grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	for _, test := range []struct {
		code   codes.Code
		cancel bool
	}{{codes.ResourceExhausted, false}, {codes.Canceled, true}} {
		ctx, cancel := context.WithCancel(context.Background())
		if !test.cancel {
			ctx = withPatience(t) // which ends before an hour has passed
		}
		if err := l.Reset(t.Context(), "127.0.0.1"); err != nil {
			t.Fatal(err)
		}
		s, err := c.NewStream(ctx, &desc, streamMethod)
		if err = errors.Join(err, s.SendMsg(new(text)), s.SendMsg(new(text))); err != nil {
			t.Fatal(err)
		}
		if err := <-begun; err != nil {
			t.Fatal(err)
		}
		if test.cancel {
			cancel()
		}
		if err := <-left; status.Code(err) != test.code {
			t.Errorf("%v, want %v", err, test.code)
		}
		cancel()
	}
}

// A message about which the store does not decide is answered as a call is.
func TestStreamMessageFails(t *testing.T) {
	store := new(coretest.FakeStore)
	l := newLimiter(t, core.PerHour(3), core.ByIP(), core.WithStore(store), core.WithFailure(core.FailClosed))
	c := serve(t, new(echo), nil, grpc.StreamInterceptor(grpclimit.StreamMessages(l)))
	s, err := open(withPatience(t), c)
	if err != nil {
		t.Fatal(err)
	}
	store.Fail(errors.New("down"))
	if err := send(s); status.Code(err) != codes.Unavailable || retryDelay(err) != time.Second {
		t.Errorf("%v, retry after %v", err, retryDelay(err))
	}
}
