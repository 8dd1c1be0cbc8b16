package coretest

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

// text is the body of the handler behind the limiters.
const text = "served"

// three is the limit of most tests of adapters.
var three = core.Limit{Quota: 3, Window: 10 * time.Second}

// The bodies of the answers to a request that is not served.
const (
	problemBase = "https://iana.org/assignments/http-problem-types#"

	noKeyBody = `{"type":"about:blank","title":"Bad Request","status":400,` +
		`"detail":"The request does not identify whose quota it uses."}`
	brokenBody = `{"type":"about:blank","title":"Internal Server Error","status":500}`
	forbidden  = `{"type":"about:blank","title":"Forbidden","status":403}`
	storeBody  = `{"type":"` + problemBase + `temporary-reduced-capacity",` +
		`"title":"Temporary Reduced Capacity","status":503,"detail":"Try again in 1 second."}`
	deniedBody = `{"type":"` + problemBase + `quota-exceeded","title":"Quota Exceeded","status":429,` +
		`"detail":"Try again in 10 seconds.","violated-policies":["3-per-10s"]}`
	neverBody = `{"type":"` + problemBase + `quota-exceeded","title":"Quota Exceeded","status":429,` +
		`"detail":"This request costs more than the whole quota, so it can never pass.",` +
		`"violated-policies":["3-per-10s"]}`
)

// What calls of Connect and gRPC are told.
const (
	deniedCall = `{"code":"resource_exhausted","message":"Quota Exceeded: Try again in 10 seconds.",` +
		`"details":[{"type":"google.rpc.RetryInfo","value":"CgIICg"}]}`
	deniedStream = "\x02\x00\x00\x00\x99" + `{"error":` + deniedCall + `}`
)

var (
	deniedGRPC = fields{
		"Grpc-Status": "8", "Grpc-Message": "Quota Exceeded: Try again in 10 seconds.",
		"Grpc-Retry-Pushback-Ms": "10000",
		"Grpc-Status-Details-Bin": "CAgSKFF1b3RhIEV4Y2VlZGVkOiBUcnkgYWdhaW4gaW4gMTAgc2Vjb25kcy4a" +
			"MAoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIECgIICg",
	}
	brokenGRPC = fields{"Grpc-Status": "13", "Grpc-Message": "Internal Server Error"}
)

// rpc returns the header fields of a call that is refused.
func rpc(mediaType string, all ...fields) fields {
	f := fields{}
	for _, more := range all {
		maps.Copy(f, more)
	}
	f["Content-Type"] = mediaType
	return f
}

// fields are the header fields of an answer.
type fields = map[string]string

const policyField = `"3-per-10s";q=3;w=10`

// problem returns the header fields of an answer with a problem document, together with more.
func problem(more fields) fields {
	all := fields{"Content-Type": adapter.ProblemType}
	maps.Copy(all, more)
	return all
}

// denied returns the header fields of a denial by the limit three.
func denied(rateLimit, retry string) fields {
	f := problem(fields{"RateLimit-Policy": policyField, "RateLimit": rateLimit, "Cache-Control": "no-store"})
	if retry != "" {
		f["Retry-After"] = retry
	}
	return f
}

// allowed returns the header fields of a request that the limit three allows.
func allowed(left int) fields {
	return fields{"RateLimit-Policy": policyField, "RateLimit": fmt.Sprintf(`"3-per-10s";r=%d;t=10`, left)}
}

// checkFields compares all header fields except those that a server adds by itself. The
// content type of the handler's own body is left to the framework.
func checkFields(t *testing.T, desc string, r *http.Response, want fields) {
	t.Helper()
	got := r.Header.Clone()
	for _, name := range []string{"Date", "Content-Length", "Connection", "Transfer-Encoding"} {
		got.Del(name)
	}
	if _, typed := want["Content-Type"]; !typed {
		got.Del("Content-Type")
	}
	expected := http.Header{}
	for name, value := range want {
		expected.Set(name, value)
	}
	if !maps.EqualFunc(got, expected, slices.Equal) {
		t.Errorf("%s: header fields\ngot  %v\nwant %v", desc, got, expected)
	}
}

func newRequest(t *testing.T, method string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://sash.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// limiterFor returns a limiter that asks the store about every request: the deny cache is off, because the
// store's clock is not the limiter's.
func limiterFor(t *testing.T, store core.Store, p core.Policy, k core.Key, opts ...core.Option) *core.Limiter {
	t.Helper()
	opts = append([]core.Option{core.WithStore(store), core.WithDenyCache(0), core.WithTimeout(time.Minute)}, opts...)
	l, err := core.New(p, k, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
