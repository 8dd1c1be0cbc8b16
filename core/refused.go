package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/setup"
	"github.com/sashlimit/sash/core/store"
)

// cause is why a request was refused with 400 or 500, or why its refund failed. The number of causes is small, so that
// what is kept for each is bounded.
type cause int

const (
	causeNoKey cause = iota
	causeAmbiguous
	causeKey
	causeList
	causeLimits
	causeRules
	causeCost
	causeStore
	causePanic
	causeHandler
	causeRefund
	causes
)

// refusalInterval is the shortest time between two log lines about one cause.
const refusalInterval = 10 * time.Second

// refusals logs why the requests of a limiter are refused, at most one line for each cause in refusalInterval.
type refusals struct {
	policy string // name
	key    string // name of the function that made the limiter's key

	mu sync.Mutex
	of [causes]lastLine
}

type lastLine struct {
	logged  time.Time
	leftOut int
}

// due reports whether a line about c is due, and how many were left out since the last.
func (r *refusals) due(c cause) (leftOut int, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := &r.of[c]
	now := time.Now()
	if !last.logged.IsZero() && now.Sub(last.logged) < refusalInterval {
		last.leftOut++
		return 0, false
	}
	leftOut, last.leftOut, last.logged = last.leftOut, 0, now
	return leftOut, true
}

// causeOf returns the cause of an error of Check, which is answered with status. A denial by a list is not logged, and
// the guard logs outages itself.
func causeOf(status int, err error) (c cause, known bool) {
	var config *ConfigError
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
	case errors.As(err, &config) && config.Option == "cost":
		return causeCost, true
	case config != nil && config.Option == "rules":
		return causeRules, true
	case config != nil && slices.Contains([]string{"LimitBy", "limits", "WithShadow", "By"}, config.Option):
		return causeLimits, true
	}
	return causeKey, true
}

// log logs why a request was answered with status, unless that was logged within refusalInterval. The line contains no
// identity: of an error that is not sash's own it has only the type, because its text may contain one.
func (r *refusals) log(ctx context.Context, status int, err error) {
	c, known := causeOf(status, err)
	if !known {
		return
	}
	leftOut, due := r.due(c)
	if !due {
		return
	}
	level := slog.LevelError
	if c == causeNoKey || c == causeAmbiguous {
		level = slog.LevelWarn
	}
	var problem, remedy string
	switch c {
	case causeNoKey:
		_, key := r.about(err)
		problem, remedy = "it has no key", remedyNoKey(key)
	case causeAmbiguous:
		problem = "its path can be read in several ways, and their rules cannot be decided together"
		remedy = "if such paths are expected, write fewer limits in these rules"
	case causeKey:
		problem, remedy = "its key could not be told", remedyKey
	case causeList:
		problem, remedy = "the key of a list could not be told", remedyKey
	case causeLimits:
		problem, remedy = "LimitBy has chosen no limits, or wrong ones", "return at least one limit for every request"
	case causeRules:
		problem, remedy = "the rules cannot decide about it", "correct the file of rules, or its adapter"
	case causeCost:
		problem = "its cost is out of range"
		remedy = "correct what WithCost returns; WithSkip lets a request pass for nothing"
	case causeStore:
		problem, remedy = "the store cannot serve its key", "see the store's documentation for the class"
	case causePanic, causeHandler, causeRefund, causes:
		problem, remedy = "a callback has panicked", "correct it"
	}
	attrs := append(r.attrs(err, leftOut), slog.String("remedy", remedy+"; WithObserver hears the error itself"))
	logSafely(ctx, level, "sash: a request is refused ("+strconv.Itoa(status)+"): "+problem, attrs)
}

// about returns the names of the policy and of the key that err is about.
func (r *refusals) about(err error) (policy, key string) {
	if of := (*limitKeyError)(nil); errors.As(err, &of) {
		return cmp.Or(of.policy, r.policy), of.key
	}
	return r.policy, r.key
}

func (r *refusals) attrs(err error, leftOut int) []slog.Attr {
	policy, key := r.about(err)
	attrs := []slog.Attr{slog.String("policy", policy), slog.String("key", key)}
	if err != ErrNoKey { //nolint:errorlint // the type of ErrNoKey itself tells nothing
		attrs = append(attrs, slog.String("error", store.ErrorTypes(err)))
	}
	var config *ConfigError
	if errors.As(err, &config) && isOwnOption(config.Option) {
		attrs = append(attrs, slog.String("reason", config.Option+": "+withoutQuotes(config.Problem+"; "+config.Remedy)))
	}
	return append(attrs, panicAttrs(err, leftOut)...)
}

func panicAttrs(err error, leftOut int) (attrs []slog.Attr) {
	if p := (*adapter.PanicError)(nil); errors.As(err, &p) {
		attrs = append(attrs, slog.String("place", setup.PlaceOf(p)), slog.String("value", fmt.Sprintf("%T", p.Value)))
	}
	if leftOut > 0 {
		attrs = append(attrs, slog.Int("lines left out", leftOut))
	}
	return attrs
}

// isOwnOption reports whether option is in errors that sash itself makes while it serves requests; adapters have a
// ByRoute. A callback may return any other ConfigError, such as one of ParseLimit, which contains its input.
func isOwnOption(option string) bool {
	return slices.Contains([]string{"cost", "limits", "rules", "LimitBy", "WithShadow", "By"}, option) ||
		strings.HasSuffix(option, ".ByRoute")
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

const remedyKey = "see why verify, or the key's function, fails; if the request has no valid key, return " +
	"core.ErrNoKey instead of another error"

func remedyNoKey(key string) string {
	switch key {
	case "ByIP":
		return `the connection has no address, as on a Unix socket: behind a proxy use core.ByForwardedIP("unix")`
	case "ByValue":
		return "mount the middleware that leaves the value in front of the limiter; core.First gives requests " +
			"without one another key"
	case "jwt":
		return "see that requests carry a valid token, and that middleware which verifies it is in front of the " +
			"limiter; core.First gives requests without one another key"
	}
	return "clients may leave it out: core.First gives such requests another key, such as core.ByIP()"
}

// logPanic logs a panic of a callback, unless one of this cause was logged within refusalInterval. An err without an
// [adapter.PanicError] is not logged.
func (r *refusals) logPanic(ctx context.Context, c cause, text, remedy string, err error) {
	if !errors.As(err, new(*adapter.PanicError)) {
		return
	}
	if leftOut, due := r.due(c); due {
		attrs := append([]slog.Attr{slog.String("policy", r.policy)}, panicAttrs(err, leftOut)...)
		logSafely(ctx, slog.LevelError, text, append(attrs, slog.String("remedy", remedy)))
	}
}

// logSafely logs and recovers a panic of the slog handler, because it is called after a panic was recovered.
func logSafely(ctx context.Context, level slog.Level, text string, attrs []slog.Attr) {
	adapter.Guard(func() error { //nolint:errcheck // the panic of a log handler cannot be reported
		slog.Default().LogAttrs(ctx, level, text, attrs...)
		return nil
	})
}
