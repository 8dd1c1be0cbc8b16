package adapter_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/adapter"
)

// denial waits for 59 seconds and somewhat more than 1 ms: 59,002 ms.
var denial = adapter.Problem{
	Title: "Quota Exceeded", Status: 429, Detail: "Try again in 60 seconds.", Wait: 59*time.Second + 1000001,
}

// What clients decode from the answer to denial; tests in core/grpclimit decode it with the clients' own libraries.
const (
	// retryInfo is retry_delay (1, 5 bytes): seconds (1) 59, nanos (2) 2,000,000.
	retryInfo   = "CgYIOxCAiXo"
	deniedError = `{"code":"resource_exhausted","message":"Quota Exceeded: Try again in 60 seconds.",` +
		`"details":[{"type":"google.rpc.RetryInfo","value":"` + retryInfo + `"}]}`
)

func answerRPC(p adapter.Problem, method, target string, header ...string) (*httptest.ResponseRecorder, bool) {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	answered := p.AnswerRPC(w, r)
	return w, answered
}

// The answer is in the caller's protocol, which the method, the header and the query tell.
func TestAnswerRPC(t *testing.T) {
	version := []string{"Connect-Protocol-Version", "1"}
	long := "application/grpc+" + strings.Repeat("p", 47) // 64 bytes
	for _, test := range []struct {
		method, query, contentType string
		header                     []string
		want                       string // the answer's media type, empty for none
	}{
		{contentType: "application/grpc", want: "application/grpc"},
		{contentType: "application/grpc+proto", want: "application/grpc+proto"},
		{contentType: "application/grpc; charset=utf-8", want: "application/grpc"},
		{contentType: " Application/GRPC+Proto ;x", want: "application/grpc+proto"},
		{contentType: "application/grpc-web", want: "application/grpc-web"},
		{contentType: "application/grpc-web-text+proto", want: "application/grpc-web-text+proto"},
		{contentType: "application/connect+proto", want: "application/connect+proto"},
		{contentType: "application/connect+json", header: version, want: "application/connect+json"},
		{contentType: "application/proto", want: "application/json"},
		{contentType: "application/json", header: version, want: "application/json"},
		{contentType: "application/x.own_1", header: version, want: "application/json"},
		{contentType: long, want: long},
		{method: "GET", query: "?connect=v1", want: "application/json"},
		{method: "GET", query: "?message=e30&encoding=json&connect=v1", want: "application/json"},
		{method: "GET", query: "?;&&=&%zz&connect=v1&connect=v2", want: "application/json"},

		{contentType: "application/json"},
		{contentType: "application/json", header: []string{"Connect-Protocol-Version", ""}},
		{contentType: "text/plain", header: version},
		{contentType: "", header: version},
		{contentType: "application/", header: version},
		{contentType: "application/grpc+"},
		{contentType: "application/grpcx"},
		{contentType: "application/connect"},
		{contentType: "application/connect+"},
		{contentType: "application/grpc+pr\r\noto"},
		{contentType: "application/grpc+\xff"},
		{contentType: "application/grpc+\u212a"}, // the Kelvin sign, whose lower case is k
		{contentType: "application/grpc/x"},
		{contentType: long + "p"},
		{contentType: strings.Repeat("application/grpc", 60_000)},
		{contentType: "; application/grpc"},
		{method: "GET", query: "?connect=v1x"},
		{method: "GET", query: "?xconnect=v1"},
		{method: "GET", contentType: "application/grpc"},
		{method: "HEAD", query: "?connect=v1"},
		{method: "HEAD", contentType: "application/grpc"},
		{method: "PUT", contentType: "application/proto", header: version},
		{method: "POST", query: "?connect=v1", contentType: "application/json"},
	} {
		method := test.method
		if method == "" {
			method = http.MethodPost
		}
		header := append([]string{"Content-Type", test.contentType}, test.header...)
		w, answered := answerRPC(denial, method, "/"+test.query, header...)
		if got := w.Header().Get("Content-Type"); got != test.want || answered != (test.want != "") {
			t.Errorf("%s %s %.80q %q: %q, %v; want %q",
				method, test.query, test.contentType, test.header, got, answered, test.want)
		}
		if test.want == "" && len(w.Header()) > 0 {
			t.Errorf("%.80q: header %v", test.contentType, w.Header())
		}
	}
}

func TestAnswerRPCBytes(t *testing.T) {
	connect := func(code, message, details string) string {
		return fmt.Sprintf(`{"code":%q,"message":%q%s}`, code, message, details)
	}
	envelope := func(text string) string {
		return "\x02\x00\x00\x00" + string([]byte{byte(len(text) + 10)}) + `{"error":` + text + "}"
	}
	stored := adapter.Problem{
		Title: "Temporary Reduced Capacity", Status: 503, Detail: "Try again in 1 second.",
		RetryAfter: 1, Wait: time.Second,
	}
	forbidden := adapter.Problem{Title: "Forbidden", Status: 403}
	never := adapter.Problem{Title: "Quota Exceeded", Status: 429, Detail: "100 % of 3 €\n", Wait: -1}
	inFlight := adapter.Problem{Title: "Quota Exceeded", Status: 429, Detail: `Try again when "one" has ended.`}
	for _, test := range []struct {
		desc, contentType string
		problem           adapter.Problem
		status            int
		header            map[string]string // besides Content-Type and Cache-Control
		body              string
	}{
		{"Connect", "application/proto", denial, 429, nil, deniedError},
		{"Connect, stored", "application/proto", stored, 503, map[string]string{"Retry-After": "1"},
			connect("unavailable", "Temporary Reduced Capacity: Try again in 1 second.",
				`,"details":[{"type":"google.rpc.RetryInfo","value":"CgIIAQ"}]`)},
		{"Connect, never", "application/proto", never, 429, nil,
			`{"code":"resource_exhausted","message":"Quota Exceeded: 100 % of 3 €\n"}`},
		{"Connect, in flight", "application/proto", inFlight, 429, nil,
			connect("resource_exhausted", `Quota Exceeded: Try again when "one" has ended.`, "")},
		{"stream, forbidden", "application/connect+json", forbidden, 200, nil,
			envelope(connect("permission_denied", "Forbidden", ""))},
		{"gRPC", "application/grpc", denial, 200, map[string]string{
			"Grpc-Status": "8", "Grpc-Message": "Quota Exceeded: Try again in 60 seconds.",
			"Grpc-Retry-Pushback-Ms": "59002",
			"Grpc-Status-Details-Bin": base64.RawStdEncoding.EncodeToString([]byte(
				"\x08\x08\x12\x28Quota Exceeded: Try again in 60 seconds.\x1a\x34" +
					"\x0a\x28type.googleapis.com/google.rpc.RetryInfo\x12\x08\x0a\x06\x08\x3b\x10\x80\x89\x7a")),
		}, ""},
		{"gRPC, never", "application/grpc-web-text", never, 200, map[string]string{
			"Grpc-Status": "8", "Grpc-Message": "Quota Exceeded: 100 %25 of 3 %E2%82%AC%0A",
			"Grpc-Retry-Pushback-Ms": "-1",
		}, ""},
		{"gRPC, in flight", "application/grpc-web", inFlight, 200, map[string]string{
			"Grpc-Status": "8", "Grpc-Message": `Quota Exceeded: Try again when "one" has ended.`,
		}, ""},
		{"gRPC, forbidden", "application/grpc", forbidden, 200, map[string]string{
			"Grpc-Status": "7", "Grpc-Message": "Forbidden",
		}, ""},
	} {
		w, answered := answerRPC(test.problem, "POST", "/", "Content-Type", test.contentType)
		want := map[string]string{"Content-Type": test.contentType, "Cache-Control": "no-store"}
		if test.contentType == "application/proto" {
			want["Content-Type"] = "application/json"
		}
		maps.Copy(want, test.header)
		got := map[string]string{}
		for name, values := range w.Header() {
			got[name] = strings.Join(values, ", ")
		}
		if !answered || w.Code != test.status || !maps.Equal(got, want) || w.Body.String() != test.body {
			t.Errorf("%s: status %d, header\n%q, body\n%q; want %d,\n%q,\n%q",
				test.desc, w.Code, got, w.Body, test.status, want, test.body)
		}
	}
}

// Each status of a problem document has a code of gRPC and the same of Connect, whose status it is.
func TestCodes(t *testing.T) {
	var got []string
	for _, status := range []int{400, 401, 403, 418, 429, 500, 503} {
		number, name := adapter.Problem{Status: status}.Code()
		got = append(got, fmt.Sprint(status, " ", number, " ", name))
	}
	want := []string{
		"400 3 invalid_argument", "401 16 unauthenticated", "403 7 permission_denied", "418 2 unknown",
		"429 8 resource_exhausted", "500 13 internal", "503 14 unavailable",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Nobody is told to come before the wait is over.
func TestDelay(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		-1:                              "0s -1",
		0:                               "0s ",
		1:                               "1ms 1",
		time.Millisecond:                "1ms 1",
		time.Millisecond + 1:            "2ms 2",
		time.Minute:                     "1m0s 60000",
		366 * 24 * time.Hour:            "8784h0m0s 31622400000",
		time.Hour + 999*time.Nanosecond: "1h0m0.001s 3600001",
	} {
		p := adapter.Problem{Wait: wait}
		if got := p.Delay().String() + " " + p.Pushback(); got != want {
			t.Errorf("%v: %q, want %q", wait, got, want)
		}
	}
}

// Whatever a client sends, the answer's header repeats nothing but a media type, and HTTP gets no answer.
func FuzzAnswerRPC(f *testing.F) {
	f.Add("POST", "", "application/grpc+proto", "", "Try again in 60 seconds.")
	f.Add("POST", "", "application/connect+json; charset=utf-8", "1", "100 % of 3 €\n")
	f.Add("POST", "", "application/json", "1", "\xff\"\\")
	f.Add("GET", "a=%zz&connect=v1", "", "", "")
	f.Fuzz(func(t *testing.T, method, query, contentType, version, detail string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Method, r.URL.RawQuery = method, query
		r.Header["Content-Type"], r.Header["Connect-Protocol-Version"] = []string{contentType}, []string{version}
		w := httptest.NewRecorder()
		answered := adapter.Problem{Title: "Quota Exceeded", Status: 429, Detail: detail, Wait: 1}.AnswerRPC(w, r)
		if !answered {
			if len(w.Header()) > 0 || w.Body.Len() > 0 {
				t.Errorf("header %v, body %q", w.Header(), w.Body)
			}
			return
		}
		for name, values := range w.Header() {
			for _, c := range strings.Join(values, "") {
				if c < ' ' || c > '~' {
					t.Errorf("%s: %q", name, values)
				}
			}
		}
		body := w.Body.Bytes()
		switch mediaType := w.Header().Get("Content-Type"); {
		case mediaType == "application/json":
		case strings.HasPrefix(mediaType, "application/connect+") && len(body) > 5:
			if length := binary.BigEndian.Uint32(body[1:]); body[0] != 2 || int(length) != len(body)-5 {
				t.Errorf("body %q", body)
			}
			body = body[5:]
		case strings.HasPrefix(mediaType, "application/grpc") && len(body) == 0:
			body = []byte("{}")
		default:
			t.Errorf("%q, body %q", mediaType, body)
		}
		if !json.Valid(body) {
			t.Errorf("body %q", body)
		}
	})
}
