package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/bridge"
	"github.com/sashlimit/sash/core/internal/setup"
	"github.com/sashlimit/sash/core/store"
)

// causeTexts are the problem and the remedy of each cause in a line about a refused request. [remedyNoKey] has the
// remedy of causeNoKey.
var causeTexts = [causes]fault{
	causeNoKey: {"it has no key", ""},
	causeAmbiguous: {
		"its path can be read in several ways, and their rules cannot be decided together",
		"if such paths are expected, write fewer limits in these rules",
	},
	causeKey:    {"its key function failed", remedyKey},
	causeList:   {"the key function of a list failed", remedyKey},
	causeLimits: {"LimitBy returned no limits, or invalid ones", "return at least one limit for every request"},
	causeRules:  {"the rules cannot be applied to it", "correct the file of rules, or its adapter"},
	causeCost: {
		"its cost is out of range", "correct what WithCost returns; WithSkip lets a request pass for nothing",
	},
	causeStore: {"the store cannot serve its key", "see the store's documentation for the class"},
	causePanic: {"a callback has panicked", "correct it"},
}

// causeOf returns the cause of an error of Check, which is answered with status. A denial by a list is not logged, and
// the guard logs outages itself.
func causeOf(status int, err error) (c cause, logged bool) {
	var own *requestError
	switch {
	case status == http.StatusServiceUnavailable:
		return causeStore, !store.IsOutage(err)
	case status != http.StatusBadRequest && status != http.StatusInternalServerError:
		return 0, false
	case errors.As(err, new(*adapter.PanicError)):
		return causePanic, true
	case errors.As(err, new(*ambiguousError)):
		return causeAmbiguous, true
	case status == http.StatusBadRequest:
		return causeNoKey, true
	case errors.As(err, new(*listError)):
		return causeList, true
	case errors.As(err, new(*bridge.RulesError)):
		return causeRules, true
	case errors.As(err, &own):
		return own.cause, true
	}
	return causeKey, true
}

// refusalInterval is the shortest time between two log lines about one cause.
const refusalInterval = 10 * time.Second

// refusalLog logs why the requests of a limiter are refused, at most one line for each cause in refusalInterval.
type refusalLog struct {
	policy string // name
	key    string // name of the function that made the limiter's key

	mu    sync.Mutex
	lines [causes]lastLine
}

type lastLine struct {
	logged  time.Time
	leftOut int
}

// due reports whether a line about c is due, and how many were left out since the last.
func (r *refusalLog) due(c cause) (leftOut int, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := &r.lines[c]
	now := time.Now()
	if !last.logged.IsZero() && now.Sub(last.logged) < refusalInterval {
		last.leftOut++
		return 0, false
	}
	leftOut, last.leftOut, last.logged = last.leftOut, 0, now
	return leftOut, true
}

// log logs why a request was answered with status, unless that was logged within refusalInterval. The line contains no
// identity: of an error that is not sash's own it has only the type, because its text may contain one.
func (r *refusalLog) log(ctx context.Context, status int, err error) {
	c, logged := causeOf(status, err)
	if !logged {
		return
	}
	leftOut, due := r.due(c)
	if !due {
		return
	}
	policy, key := r.policy, r.key
	if failed := (*limitKeyError)(nil); errors.As(err, &failed) {
		policy, key = cmp.Or(failed.policy, policy), failed.key
	}
	attrs := []slog.Attr{slog.String("policy", policy), slog.String("key", key)}
	if err != ErrNoKey { //nolint:errorlint // the type of ErrNoKey itself tells nothing
		attrs = append(attrs, slog.String("error", store.ErrorTypes(err)))
	}
	if reason := reasonOf(err); reason != "" {
		attrs = append(attrs, slog.String("reason", reason))
	}
	level, text := slog.LevelError, causeTexts[c]
	if c == causeNoKey || c == causeAmbiguous {
		level = slog.LevelWarn
	}
	if c == causeNoKey {
		text.remedy = remedyNoKey(key)
	}
	attrs = append(attrs, panicAttrs(err, leftOut)...)
	attrs = append(attrs, slog.String("remedy", text.remedy+remedyObserver))
	logSafely(ctx, level, "sash: a request is refused ("+strconv.Itoa(status)+"): "+text.problem, attrs)
}

// remedyObserver ends remedies, because the log has not the text of an error.
const remedyObserver = "; observers (WithObserver) receive the error itself"

func panicAttrs(err error, leftOut int) (attrs []slog.Attr) {
	if p := (*adapter.PanicError)(nil); errors.As(err, &p) {
		attrs = append(attrs, slog.String("place", setup.PlaceOf(p)), slog.String("value", fmt.Sprintf("%T", p.Value)))
	}
	if leftOut > 0 {
		attrs = append(attrs, slog.Int("lines left out", leftOut))
	}
	return attrs
}

// reasonOf returns the text of an error that is sash's own, or nothing. A callback may return a ConfigError as well,
// such as one of ParseLimit, which contains its input.
func reasonOf(err error) string {
	own := errors.As(err, new(*requestError)) || errors.As(err, new(*bridge.RulesError)) ||
		errors.As(err, new(*adapter.ConstantError))
	var config *ConfigError
	if !own || !errors.As(err, &config) {
		return ""
	}
	return config.Option + ": " + withoutQuotes(config.Problem+"; "+config.Remedy)
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

func remedyNoKey(key string) string {
	switch key {
	case "ByIP":
		return `the connection has no address, as on a Unix socket: behind a proxy use core.ByForwardedIP("unix")`
	case "ByValue":
		return "mount the middleware that stores the value in front of the limiter; core.First gives requests " +
			"without one another key"
	case "jwt":
		return "check that requests carry a valid token, and that the middleware which verifies it is in front of " +
			"the limiter; core.First gives requests without one another key"
	}
	return "clients may leave it out: core.First gives such requests another key, such as core.ByIP()"
}

// logPanic logs a panic of a callback, unless one of this cause was logged within refusalInterval. An err without an
// [adapter.PanicError] is not logged.
func (r *refusalLog) logPanic(ctx context.Context, c cause, text, remedy string, err error) {
	if !errors.As(err, new(*adapter.PanicError)) {
		return
	}
	if leftOut, due := r.due(c); due {
		attrs := append([]slog.Attr{slog.String("policy", r.policy)}, panicAttrs(err, leftOut)...)
		logSafely(ctx, slog.LevelError, text, append(attrs, slog.String("remedy", remedy)))
	}
}

// logOverride logs why an override has no effect, unless that was logged within refusalInterval.
func (r *refusalLog) logOverride(ctx context.Context, err error) {
	if leftOut, due := r.due(causeOverride); due {
		attrs := append(panicAttrs(err, leftOut), slog.String("policy", r.policy), slog.Any("error", err))
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
