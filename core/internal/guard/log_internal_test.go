package guard

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// logged returns what f logs.
func logged(f func()) string {
	var b bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&b, nil)))
	defer slog.SetDefault(before)
	f()
	return b.String()
}

// An outage is logged at its first failure, and its end at the first success, however short it is. Of those that come
// again and again, one is logged in ten seconds.
func TestFirstFailureIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := true
		st := scripted{nil, func(int) error {
			if fails {
				return &store.StoreError{Err: errors.New("reset by peer"), Class: "connection"}
			}
			return nil
		}}
		g := New(Config{Store: st, Policy: "p", Failure: Closed, Label: "FailClosed", Timeout: time.Minute})
		ask := func(failing bool) string {
			fails = failing
			return logged(func() {
				take := &store.Take{Key: store.NewKey("p", "k"), Plan: planOf(9, time.Minute), Cost: 1}
				g.takeOne(t.Context(), take, new(store.Answer))
			})
		}
		const (
			begins = `level=ERROR msg="sash: the store does not answer`
			ends   = `level=INFO msg="sash: the store answers again`
		)
		wants := func(got string, parts ...string) {
			t.Helper()
			for _, part := range parts {
				if strings.Count(got, part) != 1 || strings.Count(got, "\n") != 1 {
					t.Errorf("logged %q, want one line with %q", got, part)
				}
			}
			if len(parts) == 0 && got != "" {
				t.Errorf("logged %q", got)
			}
		}
		for range 3 {
			wants(ask(true), begins, "class=connection", "reset by peer", "policy=p", "failure=FailClosed")
			wants(ask(true))
			wants(ask(false), ends)
			wants(ask(false))
			time.Sleep(logInterval)
		}
		wants(ask(true), begins)
		wants(ask(false), ends)
		for range 4 { // within ten seconds
			wants(ask(true))
			wants(ask(false))
		}
		time.Sleep(logInterval)
		wants(ask(true), begins, "\"lines left out\"=8")
		for range failuresToOpen { // the breaker opens
			time.Sleep(time.Millisecond)
			wants(ask(true))
		}
		if n := g.Stats().Outages; n != 1 || g.breaker.state() != open {
			t.Errorf("%d outages, the breaker is %d", n, g.breaker.state())
		}
		time.Sleep(2 * retryStore)
		wants(ask(false), ends)

		time.Sleep(logInterval)
		wants(ask(true), begins)
		wants(ask(false), ends)
		wants(ask(true)) // the beginning of an outage that goes on for longer
		time.Sleep(logInterval)
		wants(ask(true), begins)
		wants(ask(false), ends)
	})
}
