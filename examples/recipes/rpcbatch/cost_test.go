package rpcbatch_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/examples/recipes/rpcbatch"
)

const call = `{"jsonrpc":"2.0","id":1,"method":"add","params":[[1,2],{"n":[3]}]}`

func batch(calls int) string { return "[" + strings.Repeat(call+",", calls-1) + call + "]" }

// server executes calls as many handlers do: it decodes the first value of the body, and does not look at the rest.
func server(t *testing.T, quota int) (url string, executed *atomic.Int64) {
	t.Helper()
	executed = new(atomic.Int64)
	s := httptest.NewServer(rpcbatch.New(core.PerHour(quota), core.ByIP(),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var calls []json.RawMessage
			var body json.RawMessage
			if json.NewDecoder(r.Body).Decode(&body) != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			if json.Unmarshal(body, &calls) != nil {
				calls = []json.RawMessage{body}
			}
			executed.Add(int64(len(calls)))
		})))
	t.Cleanup(s.Close)
	return s.URL, executed
}

func post(t *testing.T, url string, body io.Reader) *http.Response {
	t.Helper()
	w, err := http.Post(url, "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	w.Body.Close()
	return w
}

// A request costs as many calls as the handler executes, whatever else is in the body, and is never free.
func TestCost(t *testing.T) {
	spaces := strings.Repeat(" ", rpcbatch.MaxBody)
	for name, c := range map[string]struct {
		body     string
		executed int64
		left     string
		status   int
	}{
		"call":              {call, 1, "99", 200},
		"batch":             {batch(7), 7, "93", 200},
		"batch of one":      {batch(1), 1, "99", 200},
		"indented batch":    {"\n\t " + strings.ReplaceAll(batch(7), ",{", " ,\r\n {"), 7, "93", 200},
		"empty batch":       {"[]", 0, "99", 200},
		"batch of nonsense": {"[1, [2, 3], null, {}]", 4, "96", 200},
		"junk behind":       {batch(7) + "]}", 7, "93", 200},
		"two batches":       {batch(7) + batch(7), 7, "93", 200},
		"too large behind":  {batch(7) + spaces, 7, "93", 200},
		"too large before":  {spaces + batch(7), 0, "99", 400},
		"too large batch":   {batch(7)[:len(batch(7))-1] + spaces + "]", 0, "93", 400}, // 7 were there
		"not JSON":          {"hello", 0, "99", 400},
		"broken batch":      {"[" + call + "," + call + ", no]", 0, "98", 400},
		"nothing":           {"", 0, "99", 400},
	} {
		url, executed := server(t, 100)
		w := post(t, url, strings.NewReader(c.body))
		if left := w.Header.Get("RateLimit"); w.StatusCode != c.status || executed.Load() != c.executed ||
			!strings.HasPrefix(left, `"100-per-hour";r=`+c.left+";") {
			t.Errorf("%s: status %d, %d calls executed, RateLimit %s; want %d, %d, %s left",
				name, w.StatusCode, executed.Load(), left, c.status, c.executed, c.left)
		}
	}
}

// Whoever puts many calls into each of many requests at once has the same quota as others.
func TestFlood(t *testing.T) {
	url, executed := server(t, 100)
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			post(t, url, strings.NewReader(batch(7)+"junk"))
			post(t, url, io.MultiReader(strings.NewReader(batch(7)))) // in chunks, without a length
		})
	}
	all.Wait()
	if executed.Load() != 98 {
		t.Errorf("%d calls executed, want 14 batches of 7", executed.Load())
	}
	if w := post(t, url, strings.NewReader(batch(3))); w.StatusCode != http.StatusTooManyRequests ||
		w.Header.Get("Retry-After") == "" {
		t.Errorf("a batch of 3 with 2 left: %d, %v", w.StatusCode, w.Header)
	}
	if w := post(t, url, strings.NewReader(batch(2))); w.StatusCode != http.StatusOK {
		t.Errorf("a batch of 2 with 2 left: %d", w.StatusCode)
	}
}

// A batch above the quota never fits, so there is no time to wait for, and it takes nothing.
func TestNever(t *testing.T) {
	url, executed := server(t, 5)
	if w := post(t, url, strings.NewReader(batch(6))); w.StatusCode != http.StatusTooManyRequests ||
		w.Header.Get("Retry-After") != "" || executed.Load() != 0 {
		t.Errorf("%d, %v, %d executed", w.StatusCode, w.Header, executed.Load())
	}
	if w := post(t, url, strings.NewReader(batch(5))); w.StatusCode != http.StatusOK {
		t.Errorf("a batch of the whole quota: %d", w.StatusCode)
	}
}

// The handler gets the body byte for byte.
func TestBody(t *testing.T) {
	for _, want := range []string{"", "hello", call, batch(1000), strings.Repeat("x", rpcbatch.MaxBody)} {
		s := httptest.NewServer(rpcbatch.New(core.PerHour(2000), core.ByIP(),
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if got, err := io.ReadAll(r.Body); err != nil || !bytes.Equal(got, []byte(want)) {
					t.Errorf("%d bytes, %v; want %d", len(got), err, len(want))
				}
			})))
		if w := post(t, s.URL, strings.NewReader(want)); w.StatusCode != http.StatusOK {
			t.Error(w.Status)
		}
		s.Close()
	}
}
