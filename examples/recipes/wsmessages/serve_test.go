package wsmessages_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/examples/recipes/wsmessages"
)

// server answers in capital letters. Its authentication believes what clients say.
func server(t *testing.T, limits core.Policy) (dial func(user string) (*websocket.Conn, *http.Response, error)) {
	t.Helper()
	limiter, err := core.New(limits, wsmessages.User, core.WithName("messages"))
	if err != nil {
		t.Fatal(err)
	}
	handler := wsmessages.New(limiter, func(_ string, message []byte) []byte { return bytes.ToUpper(message) })
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
	}
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

// Messages above the limit are answered as soon as they are admitted, whichever connection of the user they come by.
func TestSlowedDown(t *testing.T) {
	dial := server(t, core.PerSecond(3))
	begin := time.Now()
	for range 2 {
		c, _, err := dial("ann")
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			send(t, c)
		}
		for range 4 {
			receive(t, c)
		}
	}
	if took := time.Since(begin); took < 2*time.Second {
		t.Errorf("8 messages of 3 a second took %v", took)
	}
}

// A message that would have to wait too long ends its connection, and no other user's.
func TestClosed(t *testing.T) {
	dial := server(t, core.PerMinute(3))
	ann, _, err := dial("ann")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		send(t, ann)
		receive(t, ann)
	}
	bob, _, err := dial("bob")
	if err != nil {
		t.Fatal(err)
	}
	send(t, ann)
	if _, _, err := ann.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusTryAgainLater {
		t.Errorf("%v, want the connection closed with status 1013", err)
	}
	send(t, bob)
	receive(t, bob)
}

// A connection has its permit until it is closed.
func TestConnections(t *testing.T) {
	dial := server(t, core.PerMinute(3))
	var open []*websocket.Conn
	for range 3 {
		c, _, err := dial("ann")
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
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
