package fiberlimit

import (
	"cmp"
	"context"
	"net/netip"
	"reflect"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/utils/v2"
	"github.com/valyala/fasthttp"

	"github.com/sashlimit/sash/core/adapter"
)

// request shows a fiber.Ctx to core.
type request struct{ c fiber.Ctx }

func (q request) Context() context.Context { return q.c.Context() }
func (q request) Peer() adapter.Peer       { return peer(q.c.RequestCtx()) }
func (q request) Value(key any) any        { return cmp.Or(q.c.Locals(key), q.Context().Value(key)) }
func (q request) Native() any              { return q.c }

func (q request) SetContext(ctx context.Context) { q.c.SetContext(ctx) }

// Target returns texts in the request's memory.
func (q request) Target() adapter.Target {
	u := q.c.Request().URI()
	config := q.c.App().Config()
	t := adapter.Target{
		Method: q.c.Method(), Host: utils.UnsafeString(u.Host()), Path: utils.UnsafeString(u.Path()),
		AnyCase: !config.CaseSensitive, AnySlash: !config.StrictRouting,
	}
	if raw := utils.UnsafeString(u.PathOriginal()); raw != t.Path {
		t.RawPath = raw
	}
	return t
}

func (q request) Gone() bool { return false } // fasthttp does not look while a handler runs
func (q request) Header(name string) (values []string) {
	for _, line := range q.c.Request().Header.PeekAll(name) {
		values = append(values, string(line))
	}
	return values
}

// peer is the connection's other end. The connection of fiber's App.Test has none and gets the one that
// httptest.NewRequest has, so that unit tests can use ByIP. No other connection does: clients without an address
// would share a quota.
func peer(c *fasthttp.RequestCtx) adapter.Peer {
	p := adapter.PeerAddr(c.RemoteAddr())
	if !p.Addr.IsValid() && !p.Unix && isTest(c.Conn()) {
		p.Addr = netip.AddrFrom4([4]byte{192, 0, 2, 1})
	}
	return p
}

// isTest reports whether it is fiber's own testConn.
func isTest(connection any) bool {
	t := reflect.TypeOf(connection)
	return t != nil && t.Kind() == reflect.Pointer && t.Elem().Name() == "testConn" && t.Elem().PkgPath() == fiberPath
}

// A limiter that is made while a request is served has seen no request before.
var _ = adapter.ServedBy("fasthttp.(*Server).serveConn")

var fiberPath = reflect.TypeFor[fiber.App]().PkgPath()
