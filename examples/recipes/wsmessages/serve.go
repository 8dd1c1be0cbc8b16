// Package wsmessages limits the messages that come through WebSockets.
package wsmessages

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/nethttp"
)

// User is the key of both limiters: what your authentication has stored with the request.
var User = core.ByValue("user")

// New returns a handler of WebSockets. A user may open 20 a minute, and have 3 open. Over all of them, the user may
// send what messages admits.
func New(messages *core.Limiter, handle func(user string, message []byte) (answer []byte)) http.Handler {
	handshakes := nethttp.New(core.Limits{core.PerMinute(20), core.InFlight(3)}, User, core.WithName("websockets"))
	return handshakes(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, _ := r.Context().Value("user").(string)
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return // Accept has answered
		}
		defer c.CloseNow()
		c.SetReadLimit(16 << 10)
		serve(r.Context(), c, user, messages, handle)
	}))
}

func serve(
	ctx context.Context, c *websocket.Conn, user string, messages *core.Limiter, handle func(string, []byte) []byte,
) {
	for {
		kind, message, err := c.Read(ctx)
		if err != nil {
			return
		}
		switch err := admit(ctx, messages, user); {
		case errors.Is(err, context.DeadlineExceeded):
			c.Close(websocket.StatusTryAgainLater, "too many messages")
			return
		case err != nil:
			c.Close(websocket.StatusInternalError, "")
			return
		}
		if err := c.Write(ctx, kind, handle(user, message)); err != nil {
			return
		}
	}
}

// admit waits for up to 5 seconds. Nothing is read meanwhile, so a client that is too fast is slowed down by TCP.
func admit(ctx context.Context, messages *core.Limiter, user string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := messages.Wait(ctx, user)
	return err
}
