package adapter

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// AnswerRPC answers a call of gRPC, gRPC-Web or Connect with the problem, in the call's own protocol. It reports
// whether the request is such a call, and writes nothing if not. It is for adapters on net/http.
//
// Clients of these protocols treat a problem document with status 429 as the code Unavailable, which many of them retry
// at once.
func (p Problem) AnswerRPC(w http.ResponseWriter, r *http.Request) bool {
	protocol, mediaType := protocolOf(r)
	status, body := http.StatusOK, []byte(nil)
	switch protocol {
	case noRPC:
		return false
	case connectUnary:
		status, body = p.Status, p.connectError() // the protocol has the same statuses for these codes
	case connectStream:
		body = p.connectEnd()
	case grpc:
		p.setStatus(w.Header())
	}
	h := w.Header()
	p.SetHeaders(h)
	h.Set("Content-Type", mediaType)
	h.Set("Cache-Control", "no-store") // browsers keep what Connect gets by GET, and 200
	w.WriteHeader(status)
	if body != nil { // without one, the header of gRPC is also its trailer
		w.Write(body)
	}
	return true
}

type protocol int

const (
	noRPC protocol = iota
	connectUnary
	connectStream
	grpc // and gRPC-Web, whose answer without a body differs only in its media type
)

// longestType is that of a media type that is answered with itself.
const longestType = 64

// protocolOf returns the protocol of a request and the media type of its answer. It reads nothing but the method, the
// header and the query.
func protocolOf(r *http.Request) (p protocol, mediaType string) {
	if r.Method == http.MethodGet {
		for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
			if pair == "connect=v1" {
				return connectUnary, "application/json"
			}
		}
	}
	if r.Method != http.MethodPost {
		return noRPC, ""
	}
	sent, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	if sent = strings.TrimSpace(sent); len(sent) > longestType || strings.ContainsFunc(sent, isNotInType) {
		return noRPC, ""
	}
	sent = strings.ToLower(sent)
	name, ok := strings.CutPrefix(sent, "application/")
	if !ok {
		return noRPC, ""
	}
	family, codec, has := strings.Cut(name, "+")
	switch family {
	case "grpc", "grpc-web", "grpc-web-text":
		if has == (codec != "") {
			return grpc, sent
		}
	case "connect":
		if codec != "" {
			return connectStream, sent
		}
	default:
		if name == "proto" || name != "" && r.Header.Get("Connect-Protocol-Version") != "" {
			return connectUnary, "application/json"
		}
	}
	return noRPC, ""
}

// isNotInType reports whether no media type of a call contains c, so that an answer's header repeats nothing else.
func isNotInType(c rune) bool {
	letter, digit := 'a' <= c|0x20 && c|0x20 <= 'z', '0' <= c && c <= '9'
	return c >= utf8.RuneSelf || !letter && !digit && !strings.ContainsRune("/+-._", c)
}

// Code returns the code of gRPC for the problem's status, and its name in Connect.
func (p Problem) Code() (number int, name string) {
	switch p.Status {
	case http.StatusBadRequest:
		return 3, "invalid_argument"
	case http.StatusUnauthorized:
		return 16, "unauthenticated"
	case http.StatusForbidden:
		return 7, "permission_denied"
	case http.StatusTooManyRequests:
		return 8, "resource_exhausted"
	case http.StatusInternalServerError:
		return 13, "internal"
	case http.StatusServiceUnavailable:
		return 14, "unavailable"
	}
	return 2, "unknown"
}

// Message returns the error message of a call, beside the code.
func (p Problem) Message() string {
	if p.Detail == "" {
		return p.Title
	}
	return p.Title + ": " + p.Detail
}

// Delay returns [Problem.Wait] in whole milliseconds, rounded up so that nobody comes too early, and 0 if that is not
// known or no wait helps.
func (p Problem) Delay() time.Duration {
	return max(0, (p.Wait + time.Millisecond - 1).Truncate(time.Millisecond))
}

// Pushback returns the value of grpc-retry-pushback-ms, and an empty text if there is none: then clients that retry
// choose the wait themselves.
func (p Problem) Pushback() string {
	switch {
	case p.Wait < 0:
		return "-1" // do not retry
	case p.Wait == 0:
		return ""
	}
	return strconv.FormatInt(p.Delay().Milliseconds(), 10)
}

// setStatus writes the fields that gRPC reads in place of a body.
func (p Problem) setStatus(h http.Header) {
	number, _ := p.Code()
	h.Set("Grpc-Status", strconv.Itoa(number))
	h.Set("Grpc-Message", percentEncoded(p.Message()))
	if pushback := p.Pushback(); pushback != "" {
		h.Set("Grpc-Retry-Pushback-Ms", pushback)
	}
	info := p.retryInfo()
	if info == nil {
		return
	}
	detail := appendBytes(nil, 1, []byte("type.googleapis.com/"+retryInfo)) // google.protobuf.Any
	detail = appendBytes(detail, 2, info)
	status := appendVarint(nil, 1, int64(number)) // google.rpc.Status
	status = appendBytes(status, 2, []byte(p.Message()))
	status = appendBytes(status, 3, detail)
	h.Set("Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(status))
}

// percentEncoded is the encoding of grpc-message, which may contain no other bytes than printable ASCII.
func percentEncoded(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// connectError is the body of an error in Connect.
func (p Problem) connectError() []byte {
	_, name := p.Code()
	b := appendString([]byte(`{"code":`), name)
	b = appendString(append(b, `,"message":`...), p.Message())
	if info := p.retryInfo(); info != nil {
		b = append(b, `,"details":[{"type":"`+retryInfo+`","value":"`...)
		b = append(base64.RawStdEncoding.AppendEncode(b, info), `"}]`...)
	}
	return append(b, '}')
}

// connectEnd is the last envelope of a stream in Connect: flags, length and the error.
func (p Problem) connectEnd() []byte {
	const endOfStream = 2
	text := p.connectError()
	b := []byte{endOfStream}
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)+len(`{"error":}`)))
	return append(append(append(b, `{"error":`...), text...), '}')
}

// retryInfo is the type of the detail that tells clients when to try again.
const retryInfo = "google.rpc.RetryInfo"

// retryInfo returns a google.rpc.RetryInfo, or nil if there is nothing to tell: its field 1, retry_delay, has a
// google.protobuf.Duration of seconds (1) and nanoseconds (2).
func (p Problem) retryInfo() []byte {
	delay := p.Delay()
	if delay == 0 {
		return nil
	}
	duration := appendVarint(nil, 1, int64(delay/time.Second))
	duration = appendVarint(duration, 2, int64(delay%time.Second))
	return appendBytes(nil, 1, duration)
}

// appendVarint appends a field of a protobuf message that is a number. A number 0 is left out.
func appendVarint(b []byte, field byte, n int64) []byte {
	if n == 0 {
		return b
	}
	return binary.AppendUvarint(append(b, field<<3), uint64(n))
}

// appendBytes appends a field of a protobuf message that is a text or a message.
func appendBytes(b []byte, field byte, content []byte) []byte {
	const hasLength = 2
	b = binary.AppendUvarint(append(b, field<<3|hasLength), uint64(len(content)))
	return append(b, content...)
}
