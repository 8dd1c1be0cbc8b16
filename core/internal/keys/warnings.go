package keys

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sashlimit/sash/core/adapter"
)

// Warnings looks at the requests of a limiter for proxies that a key does not expect, and logs each kind of mistake
// once, through [slog.Default]. Log lines have neither addresses nor identities: policy and remedy are enough. A nil
// *Warnings looks at nothing.
type Warnings struct {
	Policy string

	seen      atomic.Int32
	forwarded sync.Once
	rewritten sync.Once
	missing   sync.Once
	texts     atomic.Int32
	isAddress sync.Once
}

// checkedRequests is how many requests are checked for fields of a proxy. A wrong setup shows in the first ones, and
// later ones should not pay for it.
const checkedRequests = 100

// checkedTexts is how many texts are checked for addresses. They are more, because IPv6 clients may be few.
const checkedTexts = 10_000

func warn(ctx context.Context, policy, problem, remedy string) {
	slog.Default().LogAttrs(ctx, slog.LevelWarn, "sash: "+problem,
		slog.String("policy", policy), slog.String("remedy", remedy))
}

// peerUsed is called by keys that take the peer for the client.
func (c *Warnings) peerUsed(r adapter.Request) {
	if c == nil || c.seen.Load() >= checkedRequests {
		return
	}
	c.seen.Add(1)
	for _, name := range [...]string{"X-Forwarded-For", "Forwarded"} {
		if len(r.Header(name)) > 0 {
			c.forwarded.Do(func() {
				warn(r.Context(), c.Policy, "a request carries "+name+", but no proxy is trusted",
					"behind a proxy all clients share the proxy's quota: use core.ByForwardedIP with its addresses; "+
						"without one, a client has made this up, and nothing is wrong")
			})
		}
	}
}

// peerReplaced is called by keys that start with the peer, if other middleware has replaced its address. All requests
// are checked for that, because a client that is not behind a proxy may send its first forged header at any time.
func (c *Warnings) peerReplaced(r adapter.Request) {
	if c != nil {
		c.rewritten.Do(func() {
			warn(r.Context(), c.Policy, "the peer's address has no port, so other middleware has replaced it, mostly "+
				"by something that a client can write into a header",
				"mount the limiter in front of that middleware, or remove it, and use core.ByForwardedIP with your "+
					"proxies in its place; an address that a serverless gateway has set is right, and nothing is wrong")
		})
	}
}

// headerMissing is called by keys that read header, if a trusted proxy has sent none.
func (c *Warnings) headerMissing(r adapter.Request, header string) {
	if c == nil {
		return
	}
	c.missing.Do(func() {
		remedy := "let the proxy write the field itself, or each client that sends one chooses its key, and all " +
			"others share the proxy's quota"
		if header == "X-Forwarded-For" {
			remedy += " (nginx: proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;)"
		}
		warn(r.Context(), c.Policy, "a trusted proxy sends no "+header,
			remedy+"; if these are only the proxy's own health checks, nothing is wrong")
	})
}

// TextUsed is called by keys that find a text.
func (c *Warnings) TextUsed(r adapter.Request, text string) {
	if c != nil && c.texts.Load() < checkedTexts {
		c.checkText(r, text)
	}
}

func (c *Warnings) checkText(r adapter.Request, text string) {
	c.texts.Add(1)
	if strings.IndexByte(text, ':') < 0 {
		return
	}
	if a, _ := adapter.ParseAddr(text); a.IsValid() {
		c.isAddress.Do(func() {
			warn(r.Context(), c.Policy,
				"the text of a key is an IPv6 address, or an address with a port, "+
					"so a client has as many keys as it likes",
				"use core.ByAddr, which leaves out the port and distinguishes IPv6 clients by their /64")
		})
	}
}
