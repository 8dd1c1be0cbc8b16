package coretest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
)

// keysOfLimits sends requests of one user and then of his colleagues: those of his that are denied by his own limit
// take nothing of the organisation's, and the response names both limits.
func keysOfLimits(t *testing.T, serve Serve) {
	header := func(name string) core.Key { return core.ByHeader(name, core.Unverified) }
	const user, organisation = 3, 100
	l, err := core.New(core.Limits{
		core.PerHour(user), core.PerHour(organisation).By(header("Organisation")), core.PerHour(1000).By(core.Global()),
	}, header("User"))
	if err != nil {
		t.Fatal(err)
	}
	send := serve(t, func() string { return text }, l)
	request := func(name, organisation string) *http.Response {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("User", name)
		if organisation != "" {
			r.Header.Set("Organisation", organisation)
		}
		return send(r)
	}
	count := map[int]int{}
	for range 120 {
		count[request("ann", "acme").StatusCode]++
	}
	if count[200] != user || count[429] != 120-user {
		t.Errorf("one user's requests: %v, want %d of 200 and the others 429", count, user)
	}
	first := request("colleague", "acme")
	if got, want := first.Header["Ratelimit"], `"3-per-hour";r=2;t=3600, "100-per-hour";r=96;t=`; len(got) != 1 ||
		!strings.HasPrefix(got[0], want) || !strings.Contains(got[0], `, "1000-per-hour";r=996;t=`) {
		t.Errorf("RateLimit %q, want it to begin with %s", got, want)
	}
	count = map[int]int{}
	for n := range organisation {
		r := request(fmt.Sprint("colleague", n), "acme")
		if count[r.StatusCode]++; r.StatusCode == 429 && r.Header.Get("Retry-After") == "" {
			t.Error("a denial without Retry-After")
		}
	}
	if left := organisation - user - 1; count[200] != left || count[429] != organisation-left {
		t.Errorf("the colleagues' requests: %v, want %d of 200 and the others 429", count, left)
	}
	if r := request("ann", ""); r.StatusCode != 400 {
		t.Errorf("a request without an organisation: status %d, want 400", r.StatusCode)
	}
}
