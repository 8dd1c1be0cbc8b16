// Package wsmessages limits the messages that come through WebSockets.
package wsmessages

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/nethttp"
)

// User is the key: what your authentication has stored with the request.
var User = core.ByValue("user")

// New returns a handler of WebSockets. A handshake is a request like any other, and each message takes the same again,
// whichever connection of the user it comes by. A limit core.InFlight is one of open connections.
func New(limits core.Policy, handle func(user string, message []byte) (answer []byte)) http.Handler {
	limit := nethttp.New(limits, User, core.WithName("websockets"), core.WithDecisionInContext())
	return limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handshake, _ := core.DecisionFrom(r.Context())
		user, _ := r.Context().Value("user").(string)
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return // Accept has answered
		}
		defer c.CloseNow()
		c.SetReadLimit(16 << 10)
		for {
			kind, message, err := c.Read(r.Context())
			if err != nil || !admit(r.Context(), c, handshake) {
				return
			}
			if err := c.Write(r.Context(), kind, handle(user, message)); err != nil {
				return
			}
		}
	}))
}

// admit takes for one more message what the handshake has taken. It waits for up to 5 seconds. Nothing is read
// meanwhile, so TCP slows down a client that is too fast. If there is no room by then, it closes the connection.
func admit(ctx context.Context, c *websocket.Conn, handshake core.Decision) (ok bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	message, err := handshake.WaitAgain(ctx) // Again does not wait
	switch {
	case message.Allowed:
		return true
	case err == nil || errors.Is(err, context.DeadlineExceeded):
		c.Close(websocket.StatusTryAgainLater, fmt.Sprint("try again in ", message.RetryAfter.Round(time.Second)))
	default:
		c.Close(websocket.StatusInternalError, "")
	}
	return false
}
