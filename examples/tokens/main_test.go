package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/store"
)

// remote does nothing for a context that has ended, as stores behind a network do.
type remote struct{ store.Full }

func (r remote) Settle(ctx context.Context, s store.Settlement) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return r.Full.Settle(ctx, s)
}

// While answers are in flight, the most that they may take is reserved. What they took is
// settled even when the client has gone, and when it is more than was reserved.
func TestInFlight(t *testing.T) {
	limiter, err := core.New(core.LimitBy(limits), core.ByText(), core.WithName("tokens"),
		core.WithStore(remote{core.NewMemoryStore()}))
	if err != nil {
		t.Fatal(err)
	}
	arrived, end := make(chan bool), make(chan int)
	handler := generate(limiter, func(string, func(string)) int {
		arrived <- true
		return <-end
	})
	ended, gone := make(chan bool), make(chan bool, 4)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		context.AfterFunc(r.Context(), func() { gone <- true })
		r.SetPathValue("model", "small")
		handler(w, r)
		ended <- true
	}))
	defer server.Close()
	ask := func(ctx context.Context) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader("four"))
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("X-Api-Key", "key-1")
		if w, err := http.DefaultClient.Do(r); err == nil {
			w.Body.Close()
		}
	}
	used := func() int {
		d, err := limiter.Peek(context.WithValue(t.Context(), callKey{}, call{model: "small"}), "ann")
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range d.Limits() {
			if l.Name == "1000-tokens-per-minute" {
				return l.Used
			}
		}
		t.Fatalf("%v has no limit of tokens", d.Limits())
		return 0
	}

	ctx, leave := context.WithCancel(t.Context())
	for range 3 {
		go ask(ctx)
		<-arrived
	}
	if n := used(); n != 903 {
		t.Errorf("three answers in flight have reserved %d, want 903", n)
	}
	go ask(t.Context())
	<-ended // denied: no model was asked
	leave()
	for range 4 {
		<-gone
	}
	for i, n := range []int{10, 0, 2000} {
		end <- n
		<-ended
		if got, want := used(), []int{612, 311, 2010}[i]; got != want {
			t.Errorf("after an answer of %d tokens %d are used, want %d", n, got, want)
		}
	}
}

// For customers that share a pool it takes what their own tokens lack, as one request, and no model gives more than its
// tokens, whoever asks for them.
func TestPool(t *testing.T) {
	limiter, err := core.New(core.LimitBy(limits), core.ByText(), core.WithName("tokens"))
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		who    customer
		model  string
		tokens int
		denied string // by this limit
	}{
		{customer{name: "ann"}, "small", 600, ""},
		{customer{name: "ann"}, "small", 600, "[1000-tokens-per-minute]"},
		{customer{name: "ann"}, "small", 400, ""},
		{customer{name: "bob", pooled: true}, "small", 600, ""},
		{customer{name: "bob", pooled: true}, "small", 600, ""}, // of the pool
		{customer{name: "bob", pooled: true}, "small", 1001, ""},
		{customer{name: "bob", pooled: true}, "small", 400, ""}, // its own
		{customer{name: "cid", pooled: true}, "large", 3001, "[3000-tokens-per-minute]"},
		{customer{name: "cid", pooled: true}, "large", 3000, ""},
		{customer{name: "dan"}, "large", 1, "[3000-tokens-per-minute]"},
		{customer{name: "dan", pooled: true}, "small", 1000, ""},
		{customer{name: "dan", pooled: true}, "small", 400, "[5000-tokens-per-minute]"}, // 600, 1001 and 3000 are used
		{customer{name: "dan", pooled: true}, "small", 399, ""},
	} {
		d, err := allow(t.Context(), limiter, c.who, c.model, c.tokens)
		if denied := strings.Trim(fmt.Sprint(d.Violated), "[]"); denied != strings.Trim(c.denied, "[]") {
			t.Errorf("call %d: denied by %q, %v; want %q", i+1, denied, err, c.denied)
		}
		if err := d.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if requests := d.Limits()[0]; c.who.name == "bob" && requests.Used != i-3 {
			t.Errorf("call %d: %d requests before it, want %d", i+1, requests.Used, i-3)
		}
	}
}
