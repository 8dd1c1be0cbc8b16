package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/nethttp"
)

// ask sends a prompt of 4 bytes with the token of a customer, or with none.
func ask(t *testing.T, h http.Handler, customer, plan, zone string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/chat", strings.NewReader("four"))
	if customer != "" {
		claims := jwt.MapClaims{
			"sub": customer, "plan": plan, "zone": zone, "exp": time.Now().Add(time.Hour).Unix(),
		}
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func newGateway(t *testing.T, tokens *int) (http.Handler, *core.Limiter) {
	t.Helper()
	limiter, err := newLimiter(core.NewMemoryStore())
	if err != nil {
		t.Fatal(err)
	}
	answer := func(string, func(string)) int { return *tokens }
	return read(nethttp.From(limiter)(chat(answer))), limiter
}

// usedBy returns what a customer has used, by the name of the limit.
func usedBy(t *testing.T, l *core.Limiter, c call) map[string]int {
	t.Helper()
	d, err := l.Peek(context.WithValue(t.Context(), callKey{}, c), c.customer)
	if err != nil {
		t.Fatal(err)
	}
	used := make(map[string]int)
	for _, one := range d.Limits() {
		used[one.Name] = one.Used
	}
	return used
}

// What the answer did not take is given back in the minute and in the month, and more than was reserved is counted.
func TestSettled(t *testing.T) {
	tokens := 0
	h, limiter := newGateway(t, &tokens)
	ann := call{customer: "ann", plan: "pro", zone: time.UTC}
	for _, c := range []struct{ tokens, status, used int }{
		{10, http.StatusOK, 10},
		{500, http.StatusOK, 510},
		{190, http.StatusOK, 700},
		{1, http.StatusTooManyRequests, 700}, // 301 are reserved
	} {
		tokens = c.tokens
		if w := ask(t, h, "ann", "pro", ""); w.Code != c.status {
			t.Fatalf("an answer of %d tokens: status %d, want %d; %s", c.tokens, w.Code, c.status, w.Body)
		}
		used := usedBy(t, limiter, ann)
		minute, month := used["1000-tokens-per-minute"], used["2000000-tokens-per-month"]
		if minute != c.used || month != c.used || used["4-in-flight"] > 0 {
			t.Errorf("after an answer of %d tokens: %v, want %d", c.tokens, used, c.used)
		}
	}
}

// A denial says when there is room, and a request without a token is 401.
func TestRefused(t *testing.T) {
	tokens := 300
	h, _ := newGateway(t, &tokens)
	ask(t, h, "bob", "free", "Europe/Berlin")
	w := ask(t, h, "bob", "free", "Europe/Berlin")
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "60" {
		t.Errorf("status %d, Retry-After %q, want 429 and 60", w.Code, w.Header().Get("Retry-After"))
	}
	if left := w.Header().Get("X-RateLimit-Remaining-Tokens"); left != "100" {
		t.Errorf("%q tokens are left, want 100", left)
	}
	if w = ask(t, h, "", "", ""); w.Code != http.StatusUnauthorized || w.Header().Get("WWW-Authenticate") == "" {
		t.Errorf("without a token: status %d, %v", w.Code, w.Header())
	}
}

// An override of one customer holds for both windows, and what was used stays used. Nobody else has it.
func TestOverridden(t *testing.T) {
	tokens := 300
	h, limiter := newGateway(t, &tokens)
	ask(t, h, "bob", "free", "")
	ask(t, h, "cid", "free", "")
	err := limiter.Override(t.Context(), "bob", core.Override{
		Limits: core.Limits{core.PerMinute(601).Of("tokens"), core.PerMonth(20_000).Of("tokens")},
		Until:  time.Now().Add(time.Hour), Note: "ticket 4711",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		customer string
		status   int
	}{{"bob", http.StatusOK}, {"bob", http.StatusTooManyRequests}, {"cid", http.StatusTooManyRequests}} {
		if w := ask(t, h, c.customer, "free", ""); w.Code != c.status {
			t.Errorf("%s: status %d, want %d; %s", c.customer, w.Code, c.status, w.Body)
		}
	}
}
