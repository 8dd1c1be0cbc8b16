package wsmessages_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/examples/recipes/wsmessages"
)

// server answers in capital letters. Its authentication believes what clients say.
func server(t *testing.T, limits core.Policy) (
	dial func(user string) (*websocket.Conn, *http.Response, error), handled *atomic.Int64,
) {
	t.Helper()
	handled = new(atomic.Int64)
	handler := wsmessages.New(limits, func(_ string, message []byte) []byte {
		handled.Add(1)
		return bytes.ToUpper(message)
	})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		//nolint:revive,staticcheck // core.ByValue finds texts
		ctx := context.WithValue(r.Context(), "user", r.Header.Get("User"))
		handler.ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(s.Close)
	return func(user string) (*websocket.Conn, *http.Response, error) {
		c, w, err := websocket.Dial(t.Context(), s.URL, &websocket.DialOptions{HTTPHeader: http.Header{"User": {user}}})
		if err == nil {
			t.Cleanup(func() { c.CloseNow() })
		}
		return c, w, err
	}, handled
}

func send(t *testing.T, c *websocket.Conn) {
	t.Helper()
	if err := c.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
		t.Error(err)
	}
}

func receive(t *testing.T, c *websocket.Conn) {
	t.Helper()
	if _, answer, err := c.Read(t.Context()); string(answer) != "HELLO" || err != nil {
		t.Errorf("answer %q, %v", answer, err)
	}
}

// Messages above the limit are answered as soon as they are admitted.
func TestSlowedDown(t *testing.T) {
	dial, _ := server(t, core.PerSecond(3))
	begin := time.Now()
	c, _, err := dial("ann")
	if err != nil {
		t.Fatal(err)
	}
	for range 6 {
		send(t, c)
	}
	for range 6 {
		receive(t, c)
	}
	if took := time.Since(begin); took < 2*time.Second { // the handshake and 6 messages
		t.Errorf("7 of 3 a second took %v", took)
	}
}

// A message that would have to wait too long ends its connection, and no other user's.
func TestClosed(t *testing.T) {
	dial, _ := server(t, core.PerMinute(3))
	ann, _, err := dial("ann")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		send(t, ann)
		receive(t, ann)
	}
	bob, _, err := dial("bob")
	if err != nil {
		t.Fatal(err)
	}
	send(t, ann)
	_, _, err = ann.Read(t.Context())
	var closed websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != websocket.StatusTryAgainLater ||
		!regexp.MustCompile(`^try again in (\d\ds|1m0s)$`).MatchString(closed.Reason) {
		t.Errorf("%v, want the connection closed with status 1013 and the wait", err)
	}
	send(t, bob)
	receive(t, bob)
}

// Whoever opens more connections, sends without reading the answers, and comes back after each close, has handled what
// the limit allows, and nothing more.
func TestFlood(t *testing.T) {
	const quota = 20
	dial, handled := server(t, core.PerHour(quota))
	var opened atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				c, w, err := dial("mallory")
				if err != nil {
					if w == nil || w.StatusCode != http.StatusTooManyRequests || w.Header.Get("Retry-After") == "" {
						t.Errorf("%v, %v; want 429 and Retry-After", w, err)
					}
					return
				}
				opened.Add(1)
				for range 3 { // then it comes back, as the others do
					if c.Write(t.Context(), websocket.MessageText, []byte("hello")) != nil {
						break
					}
				}
				for range 3 {
					if _, _, err := c.Read(t.Context()); err != nil {
						break
					}
				}
				c.CloseNow()
			}
		})
	}
	all.Wait()
	if total := opened.Load() + handled.Load(); total != quota || handled.Load() == 0 {
		t.Errorf("%d connections and %d messages, want %d together", opened.Load(), handled.Load(), quota)
	}
}

// A connection has its permit until it is closed, and messages take none.
func TestConnections(t *testing.T) {
	dial, _ := server(t, core.Limits{core.PerHour(1_000_000), core.InFlight(3)})
	var open []*websocket.Conn
	for range 3 {
		c, _, err := dial("ann")
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	for _, c := range open {
		send(t, c)
		receive(t, c)
	}
	if _, w, err := dial("ann"); err == nil || w == nil || w.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the fourth connection: %v, %v; want status 429", fmt.Sprint(w), err)
	}
	if _, _, err := dial("bob"); err != nil {
		t.Error(err)
	}
	if err := open[0].Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	for { // the server's handler ends after the client's Close
		if _, _, err := dial("ann"); err == nil {
			return
		}
		if t.Context().Err() != nil {
			t.Fatal("the permit of a closed connection is not given back")
		}
	}
}
