package core

import (
	"time"

	"github.com/sashlimit/sash/core/internal/engine"
)

// WithBan bans a client after this many denials within a window. The first ban lasts for first, and each further one
// twice as long, up to 64 times first. A ban is forgotten 128 times first after it began. A request during a ban is
// denied (429) with Banned set and the problem type "abnormal-usage-detected". It is not counted, so trying does not
// prolong the ban. RetryAfter is then what is left of the ban; the limits are not asked, and may have no room when it
// ends. [Limiter.Reset] lifts it.
//
// A denial counts if a limit that has a window and the limiter's key has denied, alone or with others. Denials by
// limits with another key ([Limit.By]) do not count, since other clients may have used those up, and neither do denials
// by [InFlight]. If no limit counts, [New] returns an error. All clients that share the limiter's key are banned
// together, so do not ban requests by [Global].
//
// Denials are counted exactly, in a log of their own, and bans are kept in another, so a request calls the store twice,
// and a denied one three times. [Limiter.Record] is not affected, and waiting in [Limiter.Wait] does not count as a
// denial.
func WithBan(denials int, within, first time.Duration) Option {
	g := given{name: "WithBan", inRules: "a deny list, or a limit over a longer window"}
	return g.option(func(c *config) { c.Ban = &engine.Ban{Denials: denials, Within: within, First: first} })
}
