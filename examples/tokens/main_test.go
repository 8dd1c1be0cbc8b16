package main

import (
	"context"
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
	limiter, err := core.New(core.PerMinute(1000), core.Global(), core.WithStore(remote{core.NewMemoryStore()}))
	if err != nil {
		t.Fatal(err)
	}
	arrived, end := make(chan bool), make(chan int)
	handler := generate(limiter, func(string) (string, int) {
		arrived <- true
		return "answer", <-end
	})
	ended, gone := make(chan bool), make(chan bool, 4)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		context.AfterFunc(r.Context(), func() { gone <- true })
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
		d, err := limiter.Peek(t.Context(), "ann")
		if err != nil {
			t.Fatal(err)
		}
		return d.Used
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
