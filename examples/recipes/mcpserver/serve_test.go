package mcpserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/examples/recipes/mcpserver"
)

func server(t *testing.T, quota int, opts ...core.Option) (url string, executed *atomic.Int64) {
	t.Helper()
	executed = new(atomic.Int64)
	s := mcp.NewServer(&mcp.Implementation{Name: "counter", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "count"},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			executed.Add(1)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "counted"}}}, nil, nil
		})
	h := httptest.NewServer(mcpserver.New(core.PerHour(quota), core.ByIP(), s, opts...))
	t.Cleanup(h.Close)
	return h.URL, executed
}

func connect(t *testing.T, url string) (*mcp.ClientSession, error) {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	session, err := client.Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: url, DisableStandaloneSSE: true}, nil)
	if err == nil {
		t.Cleanup(func() { session.Close() })
	}
	return session, err
}

// limited checks what an agent's client makes of a denial.
func limited(t *testing.T, err error) {
	t.Helper()
	var denied *jsonrpc.Error
	var data struct{ RetryAfter int }
	if !errors.As(err, &denied) {
		t.Errorf("%v, want an error of JSON-RPC", err)
	} else if json.Unmarshal(denied.Data, &data) != nil || denied.Code != 429 ||
		!strings.Contains(denied.Message, "Try again in ") || data.RetryAfter < 3000 || data.RetryAfter > 3600 {
		t.Errorf("%+v, data %s", denied, denied.Data)
	}
}

// The client of the SDK reads the wait, and its session goes on when there is room again.
func TestDenied(t *testing.T) {
	var last core.Decision
	url, executed := server(t, 10, core.WithObserver(func(_ context.Context, e core.Event) { last = e.Decision }))
	session, err := connect(t, url)
	if err != nil {
		t.Fatal(err)
	}
	call := func() error {
		_, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "count"})
		return err
	}
	for err = call(); err == nil; err = call() {
	}
	limited(t, err)
	if n := executed.Load(); n == 0 || n > 10 {
		t.Errorf("%d calls of 10 requests", n)
	}
	if err := last.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := call(); err != nil {
		t.Errorf("after the window: %v", err)
	}
}

// Whoever calls at once, in sessions without end, has one quota. A new session is denied as a call is.
func TestFlood(t *testing.T) {
	const quota = 60
	url, executed := server(t, quota)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				session, err := connect(t, url)
				if err != nil {
					if !strings.Contains(err.Error(), "Too Many Requests") { // the notification that ends a handshake
						limited(t, err)
					}
					return
				}
				for range 5 {
					if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "count"}); err != nil {
						limited(t, err)
					}
				}
			}
		})
	}
	all.Wait()
	if n := executed.Load(); n == 0 || n >= quota {
		t.Errorf("%d calls of %d requests, some of which begin sessions", n, quota)
	}
}

// A denial has the id of its call, as it was written; and what cannot be answered so has status 429.
func TestID(t *testing.T) {
	url, executed := server(t, 1)
	send := func(method, body string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		w, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Body.Close()
		text, err := io.ReadAll(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		return w, string(text)
	}
	send(http.MethodPost, "{}") // takes the quota
	for _, id := range []string{`7`, `"seven"`, `9007199254740993`, `"\u0000\"},\"result\":{"`} {
		w, body := send(http.MethodPost, `{"jsonrpc":"2.0","method":"tools/list","id":`+id+`}`)
		var answer struct {
			ID     json.RawMessage
			Result any
			Error  *jsonrpc.Error
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || string(answer.ID) != id ||
			answer.Error == nil || answer.Result != nil {
			t.Errorf("id %s: %v, %s", id, err, body)
		}
		if w.StatusCode != http.StatusOK || w.Header.Get("Retry-After") == "" ||
			w.Header.Get("Content-Type") != "application/json" || w.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("id %s: %d, %v", id, w.StatusCode, w.Header)
		}
	}
	for _, body := range []string{
		"", "hello", "[]", "null", `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","method":"tools/list","id":{"a":[1]}}`, `{"jsonrpc":"2.0","method":"tools/list","id":null}`,
		`{"jsonrpc":"2.0","id":7,"result":{}}`, `{"method":"x","id":"` + strings.Repeat("x", 1<<20) + `"}`,
	} {
		if w, text := send(http.MethodPost, body); w.StatusCode != http.StatusTooManyRequests || len(text) > 1000 ||
			w.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%.60s: %d, %v, %s", body, w.StatusCode, w.Header, text)
		}
	}
	if w, _ := send(http.MethodGet, ""); w.StatusCode != http.StatusTooManyRequests {
		t.Errorf("GET: %d", w.StatusCode)
	}
	if executed.Load() != 0 {
		t.Error("a denied call was executed")
	}
}
