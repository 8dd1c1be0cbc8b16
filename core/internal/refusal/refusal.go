// Package refusal logs why the requests of a limiter are refused, and which callbacks have panicked. A line contains no
// identity: of an error that is not sash's own it has only the type, because its text may contain one.
package refusal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/setup"
	"github.com/sashlimit/sash/core/store"
)

// Cause is why a request was refused with 400, 500 or 503, or which callback has panicked. The number of causes is
// small, so that what is kept for each is bounded.
type Cause int

// These are the causes.
const (
	NoKey Cause = iota
	Ambiguous
	Key
	List
	Limits
	Rules
	Cost
	Store
	Panic
	Handler
	Refund
	Override
	causes
)

// texts are the problem and the remedy of each cause in a line about a refused request. remedyNoKey has the remedy of
// NoKey.
var texts = [causes]struct{ problem, remedy string }{
	NoKey: {"it has no key", ""},
	Ambiguous: {
		"its path can be read in several ways, and their rules cannot be decided together",
		"if such paths are expected, write fewer limits in these rules",
	},
	Key:  {"its key function failed", remedyKey},
	List: {"the key function of a list failed", remedyKey},
	Limits: {
		"LimitBy returned no limits, or invalid ones",
		"do what the reason says: every request needs limits, and these must fit the options and the store",
	},
	Rules: {"the rules cannot be applied to it", "correct the file of rules, or its adapter"},
	Cost: {
		"its cost is out of range",
		"correct what WithCost or WithCostOf returns; WithSkip lets a request pass for nothing",
	},
	Store: {"the store cannot serve its key", "see the store's documentation for the class"},
	Panic: {"a callback has panicked", "correct it"},
}

// interval is the shortest time between two log lines about one cause.
const interval = 10 * time.Second

// Log logs at most one line for each cause in an interval.
type Log struct {
	Policy string // name
	Key    string // name of the function that made the limiter's key

	mu    sync.Mutex
	lines [causes]lastLine
}

type lastLine struct {
	logged  time.Time
	leftOut int
}

// Due reports whether a line about c is due, and how many were left out since the last.
func (l *Log) Due(c Cause) (leftOut int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := &l.lines[c]
	now := time.Now()
	if !last.logged.IsZero() && now.Sub(last.logged) < interval {
		last.leftOut++
		return 0, false
	}
	leftOut, last.leftOut, last.logged = last.leftOut, 0, now
	return leftOut, true
}

// Refusal is a request that was refused.
type Refusal struct {
	Cause       Cause
	Status      int
	Err         error
	Own         *store.ConfigError // within Err, if its text is sash's own, or nil
	Policy, Key string             // of the limit whose key has failed, or empty
	LeftOut     int                // lines since the last one
}

// Refused logs why a request was refused.
func (l *Log) Refused(ctx context.Context, r Refusal) {
	policy, key := cmp.Or(r.Policy, l.Policy), cmp.Or(r.Key, l.Key)
	attrs := []slog.Attr{slog.String("policy", policy), slog.String("key", key)}
	if r.Err != keys.ErrNoKey { //nolint:errorlint // the type of ErrNoKey itself tells nothing
		attrs = append(attrs, slog.String("error", store.ErrorTypes(r.Err)))
	}
	if own := r.Own; own != nil {
		reason := own.Option + ": " + withoutQuotes(own.Problem+"; "+own.Remedy)
		attrs = append(attrs, slog.String("reason", reason))
	}
	level, text := slog.LevelError, texts[r.Cause]
	if r.Cause == NoKey || r.Cause == Ambiguous {
		level = slog.LevelWarn
	}
	if r.Cause == NoKey {
		text.remedy = remedyNoKey(key)
	}
	attrs = append(attrs, panicAttrs(r.Err, r.LeftOut)...)
	attrs = append(attrs, slog.String("remedy", text.remedy+RemedyObserver))
	logSafely(ctx, level, "sash: a request is refused ("+strconv.Itoa(r.Status)+"): "+text.problem, attrs)
}

// RemedyObserver ends remedies, because the log has not the text of an error.
const RemedyObserver = "; observers (WithObserver) receive the error itself"

func panicAttrs(err error, leftOut int) (attrs []slog.Attr) {
	if p := (*adapter.PanicError)(nil); errors.As(err, &p) {
		attrs = append(attrs, slog.String("place", setup.PlaceOf(p)), slog.String("value", fmt.Sprintf("%T", p.Value)))
	}
	if leftOut > 0 {
		attrs = append(attrs, slog.Int("lines left out", leftOut))
	}
	return attrs
}

// withoutQuotes removes quoted texts from a reason, because the name of a limit may contain an identity.
func withoutQuotes(s string) string {
	var b []byte
	for i := 0; i < len(s); i++ {
		b = append(b, s[i])
		if s[i] != '"' {
			continue
		}
		quoted, err := strconv.QuotedPrefix(s[i:])
		if err != nil {
			return string(b)
		}
		b = append(b, `..."`...)
		i += len(quoted) - 1
	}
	return string(b)
}

const remedyKey = "find out why verify, or the key's function, fails; if the request has no valid key, " +
	"return core.ErrNoKey"

const remedyNoAddress = `; core.ByIP finds nothing on a Unix socket: use core.ByForwardedIP("unix") there`

func remedyNoKey(key string) string {
	switch key {
	case "ByIP":
		return `the connection has no address, as on a Unix socket: behind a proxy use core.ByForwardedIP("unix")`
	case "ByForwardedIP", "ByForwarded", "ByIPHeader":
		return `the connection has no address, as on a Unix socket: behind a proxy name "unix" among those trusted`
	case "First":
		return "none of its keys finds anything: add one that every request has" + remedyNoAddress
	case "Join":
		return "one of its keys finds nothing: core.First gives requests without it another key" + remedyNoAddress
	case "ByAddr":
		return "mount the middleware that finds the address in front of the limiter; on a Unix socket there is none, so " +
			"it must read what the proxy reports"
	case "ByValue":
		return "mount the middleware that stores the value in front of the limiter, and store a string, a whole " +
			"number or a type with a String method; core.First gives requests without one another key"
	case "jwt":
		return "check that requests carry a valid token, and that the middleware which verifies it is in front of " +
			"the limiter; core.First gives requests without one another key"
	}
	return "clients may leave it out: core.First gives such requests another key, such as core.ByIP()"
}

// Panicked logs a panic of a callback, unless one of this cause was logged within the interval. An err without an
// [adapter.PanicError] is not logged.
func (l *Log) Panicked(ctx context.Context, c Cause, text, remedy string, err error) {
	if !errors.As(err, new(*adapter.PanicError)) {
		return
	}
	if leftOut, due := l.Due(c); due {
		attrs := append([]slog.Attr{slog.String("policy", l.Policy)}, panicAttrs(err, leftOut)...)
		logSafely(ctx, slog.LevelError, text, append(attrs, slog.String("remedy", remedy)))
	}
}

// NotOverridden logs why an override has no effect, unless that was logged within the interval.
func (l *Log) NotOverridden(ctx context.Context, err error) {
	if leftOut, due := l.Due(Override); due {
		attrs := append(panicAttrs(err, leftOut), slog.String("policy", l.Policy), slog.Any("error", err))
		logSafely(ctx, slog.LevelError, "sash: an override cannot be applied, so it has no effect", attrs)
	}
}

// logSafely logs and recovers a panic of the slog handler, because it is called after a panic was recovered.
func logSafely(ctx context.Context, level slog.Level, text string, attrs []slog.Attr) {
	adapter.Guard(func() error { //nolint:errcheck // the panic of a log handler cannot be reported
		slog.Default().LogAttrs(ctx, level, text, attrs...)
		return nil
	})
}
