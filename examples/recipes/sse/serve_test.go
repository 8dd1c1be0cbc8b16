package sse_test

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/examples/recipes/sse"
)

// endless is as many events as a client takes. One tries to tell the browser to come back at once.
func endless(r *http.Request) iter.Seq[any] {
	return func(yield func(any) bool) {
		for r.Context().Err() == nil && yield("hello\n\nretry: 0\n\ndata: forged\n\n") {
		}
	}
}

// read reads a stream to its end: how many events it has, and for how many milliseconds its client is sent away.
func read(t *testing.T, body io.Reader) (events, retry int) {
	t.Helper()
	lines := bufio.NewScanner(body)
	limited := false
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case field == "retry":
			var err error
			if retry, err = strconv.Atoi(value); err != nil {
				t.Error(err)
			}
		case field == "event":
			limited = value == "limited"
		case field == "data" && !limited:
			if events++; value != `"hello\n\nretry: 0\n\ndata: forged\n\n"` {
				t.Errorf("data %s", value)
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
	return events, retry
}

// Whoever opens many streams, and others as soon as they end, gets as many events as the limit allows. Each stream
// that ends tells when to come back.
func TestFlood(t *testing.T) {
	const quota = 50
	server := httptest.NewServer(sse.New(core.PerHour(quota), core.ByIP(), endless))
	defer server.Close()
	var total, retry atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				w, err := http.Get(server.URL)
				if err != nil {
					t.Error(err)
					return
				}
				defer w.Body.Close()
				if w.StatusCode == http.StatusTooManyRequests {
					if w.Header.Get("Retry-After") == "" {
						t.Errorf("a denial without Retry-After: %v", w.Header)
					}
					return
				}
				events, wait := read(t, w.Body)
				total.Add(int64(events))
				retry.Store(int64(wait))
			}
		})
	}
	all.Wait()
	if total.Load() != quota {
		t.Errorf("%d events, want %d", total.Load(), quota)
	}
	if wait := time.Duration(retry.Load()) * time.Millisecond; wait < 55*time.Minute || wait > time.Hour {
		t.Errorf("retry after %v, want about an hour", wait)
	}
}

// A stream that keeps within the limit goes on, while another client is denied.
func TestWithinLimit(t *testing.T) {
	server := httptest.NewServer(sse.New(core.PerHour(3), core.ByHeader("User", core.Unverified),
		func(r *http.Request) iter.Seq[any] {
			if r.Header.Get("User") == "mallory" {
				return endless(r)
			}
			return func(yield func(any) bool) { _ = yield(1) && yield(2) && yield(3) }
		}))
	defer server.Close()
	for user, want := range map[string]string{
		"mallory": "retry: ", "ann": "data: 1\n\ndata: 2\n\ndata: 3\n\n",
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("User", user)
		w, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(w.Body)
		w.Body.Close()
		if err != nil || !strings.Contains(string(body), want) || w.Header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("%s: %v", user, fmt.Sprint(w.Header, string(body), err))
		}
	}
}
