package guard

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sashlimit/sash/core/store"
)

const logInterval = 10 * time.Second // at least, between two outages that are logged

// outageLog logs the beginning and the end of outages.
type outageLog struct {
	policy, failure string
	attrs           atomic.Pointer[[]slog.Attr] // of the latest failure
	outages         atomic.Uint64               // that have begun

	mu      sync.Mutex
	logged  time.Time // when the beginning of an outage was last logged
	logs    bool      // the beginning of the latest outage was logged, so its end is too
	skipped int       // lines not logged since the last one that was
}

// change logs that the breaker has opened or closed.
func (l *outageLog) change(open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if open {
		l.outages.Add(1)
		if l.logs = time.Since(l.logged) >= logInterval; l.logs {
			l.logged = time.Now()
		}
	}
	if !l.logs {
		l.skipped++
		return
	}
	attrs := []slog.Attr{slog.String("policy", l.policy), slog.String("failure", l.failure)}
	if l.skipped > 0 {
		attrs = append(attrs, slog.Int("lines left out", l.skipped))
	}
	l.skipped = 0
	level, text := slog.LevelInfo, "sash: the store answers again"
	if open {
		level, text = slog.LevelError, "sash: the store does not answer, so the failure policy decides"
		attrs = append(attrs, *l.attrs.Load()...)
	}
	slog.Default().LogAttrs(context.Background(), level, text, attrs...)
}

// logAttrs returns what is logged of an error. An identity, which isIn recognises, must not appear in the log. An error
// without a class was not classified by its store, and its text may contain any part of the call, so only its types are
// logged.
func logAttrs(e *store.StoreError, isIn func(text string) bool) []slog.Attr {
	text, advice := store.ErrorTypes(e.Err), e.Advice
	if e.Err != nil && e.Class != "" && !isIn(e.Err.Error()) {
		text = e.Err.Error()
	}
	if isIn(advice) {
		advice = ""
	}
	return []slog.Attr{slog.String("class", e.Class), slog.String("error", text), slog.String("advice", advice)}
}

// isIn reports whether a text contains the identity of k.
func isIn(k *store.Key, text string) bool {
	if k.Addr.IsValid() {
		return strings.Contains(text, k.Addr.String())
	}
	return k.Kind != "all" && k.Text != "" && strings.Contains(text, k.Text)
}
