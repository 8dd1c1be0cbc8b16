package fasthttpadapter

import (
	"net"
	"reflect"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
)

// ending is the end of what goes on after a handler has returned.
type ending struct {
	ended   atomic.Bool
	release func()
}

// ReleaseAtEnd calls release, unless it is nil, when fasthttp has sent the body stream, or when the handler of the
// hijacked connection has ended or cannot begin.
func ReleaseAtEnd(c *fasthttp.RequestCtx, release func()) {
	if release == nil {
		return
	}
	e := &ending{release: release}
	value := &struct{ *ending }{e}
	c.SetUserValue(value, value) // fasthttp closes it when it has done with the request
	// If fasthttp cannot send the response before the hijack, or has been asked to close the connection after it, it
	// closes the connection and drops c without closing its values.
	if raw := rawConn(c.Conn()); c.Hijacked() && raw != nil {
		e.watch(raw, time.Millisecond)
	}
	// It drops c after TimeoutError, too, and not every connection can be watched.
	runtime.AddCleanup(value, func(e *ending) { go e.Close() }, e)
}

// Close implements [io.Closer].
func (e *ending) Close() error {
	if !e.ended.Swap(true) {
		e.release()
	}
	return nil
}

// watch ends e soon after the server has closed the connection. It asks rarely once that has not happened for long, as
// most connections are closed after their own handler has ended, when Close has been called.
func (e *ending) watch(c syscall.RawConn, wait time.Duration) {
	time.AfterFunc(wait, func() {
		switch {
		case e.ended.Load():
		case c.Control(func(uintptr) {}) != nil: // it fails only if the connection is closed
			e.Close()
		default:
			e.watch(c, min(2*wait, 10*time.Second))
		}
	})
}

// rawConn returns the operating system's connection that c is or wraps, or nil if c does not show it. It is found while
// the handler runs, because fasthttp may use its own wrapper for another connection later.
func rawConn(c net.Conn) syscall.RawConn {
	for range 8 { // wrappers
		switch outer := c.(type) {
		case syscall.Conn:
			raw, _ := outer.SyscallConn() // nil if it fails
			return raw
		case interface{ NetConn() net.Conn }: // such as *tls.Conn
			c = outer.NetConn()
		case interface{ Raw() net.Conn }: // such as that of the PROXY protocol, github.com/pires/go-proxyproto
			c = outer.Raw()
		default:
			c = embedded(c)
		}
	}
	return nil
}

// embedded returns the net.Conn that a wrapper embeds, such as that of fasthttp's MaxConnsPerIP, or nil.
func embedded(c net.Conn) net.Conn {
	v := reflect.Indirect(reflect.ValueOf(c))
	if v.Kind() != reflect.Struct {
		return nil
	}
	field, ok := v.Type().FieldByName("Conn")
	if !ok || len(field.Index) > 1 {
		return nil
	}
	inner, _ := reflect.TypeAssert[net.Conn](v.FieldByIndex(field.Index))
	return inner
}
