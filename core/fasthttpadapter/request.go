// Package fasthttpadapter is what packages for frameworks on fasthttp share, as package core/adapter is for all. It
// reads a request and the end of its response; the framework's package answers.
package fasthttpadapter

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"github.com/valyala/fasthttp"

	"github.com/sashlimit/sash/core/adapter"
)

// PeerOf returns the connection's other end. A connection of a type testConn of the framework's package has none and
// gets the one that httptest.NewRequest has, so that unit tests can use ByIP. No other connection does: clients without
// an address would share a quota.
func PeerOf(c *fasthttp.RequestCtx, framework string) adapter.Peer {
	p := adapter.PeerAddr(c.RemoteAddr())
	if p.Addr.IsValid() || p.Unix {
		return p
	}
	t := reflect.TypeOf(c.Conn())
	if t != nil && t.Kind() == reflect.Pointer && t.Elem().Name() == "testConn" && t.Elem().PkgPath() == framework {
		p.Addr = netip.AddrFrom4([4]byte{192, 0, 2, 1})
	}
	return p
}

// HeaderOf returns the lines of a field of the request, copied, in the order in which they came. fasthttp appends a
// trailer to the header, and proxies that pass trailers on do not replace what clients write there. So of a chunked
// request it returns no more lines than were sent in front of the body: those that middleware has added are not there
// either.
func HeaderOf(c *fasthttp.RequestCtx, name string) []string {
	h := &c.Request.Header
	lines := linesOf(h, name)
	if len(lines) > 1 {
		lines = asSent(lines, h, name)
	}
	if n := h.ContentLength(); n == -1 || n == 0 { // so it is after a chunked body, which may have been empty
		return lines[:min(len(lines), mostSent(h.RawHeaders(), name))]
	}
	return lines
}

// asSent returns lines in the order in which they came, and others behind them. When fasthttp removes a field, as it
// does with Transfer-Encoding after an empty body, the last field of the header takes its place. So a client could
// move what a proxy has appended in front of a line of its own.
func asSent(lines []string, h *fasthttp.RequestHeader, name string) (ordered []string) {
	text := fmt.Appendf(nil, "%s / %s\r\n%s", h.Method(), h.Protocol(), h.RawHeaders())
	var sent fasthttp.RequestHeader
	sent.DisableNormalizing()
	if sent.Read(bufio.NewReaderSize(bytes.NewReader(text), len(text))) != nil {
		return lines // a program has made them
	}
	for _, line := range linesOf(&sent, name) {
		if i := slices.Index(lines, line); i >= 0 {
			ordered, lines = append(ordered, line), slices.Delete(lines, i, i+1)
		}
	}
	return append(ordered, lines...)
}

func linesOf(h *fasthttp.RequestHeader, name string) (lines []string) {
	if h.Peek("host") == nil { // Host is not found either, so names are as sent: DisableHeaderNormalizing of fiber
		h.VisitAll(func(sent, line []byte) {
			if isNamed(sent, name) {
				lines = append(lines, string(line))
			}
		})
		return lines
	}
	for _, line := range h.PeekAll(name) {
		lines = append(lines, string(line))
	}
	return lines
}

// mostSent returns how many lines of a field a chunked request may have, and the largest number for any other.
func mostSent(header []byte, name string) int {
	lines, chunked := 0, false
	for line := range bytes.Lines(header) {
		sent, _, _ := bytes.Cut(line, []byte(":"))
		chunked = chunked || isNamed(sent, fasthttp.HeaderTransferEncoding)
		if isNamed(sent, name) {
			lines++
		}
	}
	if !chunked {
		return math.MaxInt
	}
	return lines
}

// isNamed compares lengths as well, because some letters beyond ASCII are small forms of K and S.
func isNamed(sent []byte, name string) bool {
	return len(sent) == len(name) && strings.EqualFold(textOf(sent), name)
}

// TargetOf returns what the request asks for, with the method and the path as the framework reads them, and whether it
// tells apart letters of another case, and slashes at the end. The texts are in the request's memory.
func TargetOf(c *fasthttp.RequestCtx, method, path string, caseSensitive, strict bool) adapter.Target {
	u := c.Request.URI()
	t := adapter.Target{
		Method: method, Host: textOf(u.Host()), Path: textOf(u.Path()),
		AnyCase: !caseSensitive, AnySlash: !strict, AnyRest: true, // /static/* serves /static
	}
	if raw := textOf(u.PathOriginal()); raw != t.Path {
		t.RawPath = raw
	}
	if path != t.Path && path != t.RawPath { // UnescapePath of fiber does not clean, and decodes more than net/url
		t.Routed = path
	}
	return t
}

// Header is a response's, as limiters write to it.
type Header struct{ *fasthttp.ResponseHeader }

// Get copies, because fasthttp uses its bytes again.
func (h Header) Get(name string) string { return string(h.Peek(name)) }

// Set does not look for capitals and line breaks, as fasthttp's does: core's names are in canonical form, and its
// values have no line breaks.
func (h Header) Set(name, value string) { h.SetCanonical(bytesOf(name), bytesOf(value)) }

// textOf and bytesOf do not copy. The bytes are not written to.
func textOf(b []byte) string  { return unsafe.String(unsafe.SliceData(b), len(b)) } //nolint:gosec // see above
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) } //nolint:gosec // see above
