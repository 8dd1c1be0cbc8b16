package coretest

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sashlimit/sash/core"
)

// unwrapped is a writer of which only http.ResponseController finds out that it can be hijacked.
type unwrapped struct{ http.ResponseWriter }

func (w unwrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Middleware around the framework may have a writer that leaves all but writing to http.ResponseController.
func (s handlers[C]) hijack(t *testing.T) {
	if s.Hijack == nil {
		t.Skip("the framework has no such writers")
	}
	asked := make(chan int, 1)
	app := s.App(nil, func(c C) error {
		connection, rw, err := s.Hijack(c)
		if err != nil {
			return err
		}
		defer connection.Close()
		io.Copy(io.Discard, rw)
		return nil
	}, s.New(core.PerMinute(9), core.ByIP(), core.WithRefund(func(_ C, status int) bool {
		asked <- status
		return false
	})))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		app.ServeHTTP(unwrapped{w}, r)
	}))
	defer server.Close()
	c, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: sash.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	c.Close()
	if status := <-asked; status != http.StatusSwitchingProtocols {
		t.Errorf("asked about %d, want 101", status)
	}
}
