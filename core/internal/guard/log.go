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

const logInterval = 10 * time.Second // between outages that are logged

// outageLog tells the operator of the beginning and the end of an outage.
type outageLog struct {
	policy, failure string
	attrs           atomic.Pointer[[]slog.Attr] // of the latest failure

	mu      sync.Mutex
	logged  time.Time // when an outage's beginning was
	logs    bool      // ... and so its end will be
	skipped int
}

// change is called when the breaker opens or closes.
func (l *outageLog) change(open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if open {
		if l.logs = time.Since(l.logged) >= logInterval; l.logs {
			l.logged = time.Now()
		}
	}
	if !l.logs { // an outage's end is told if its beginning was
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

// logAttrs is what the log tells of an error about key. A store that names no class has not looked at its error,
// whose text may then hold whatever the store was asked.
func logAttrs(e *store.StoreError, key *store.Key) []slog.Attr {
	text, advice := store.ErrorTypes(e.Err), e.Advice
	if e.Err != nil && e.Class != "" && !isIn(key, e.Err.Error()) {
		text = e.Err.Error()
	}
	if isIn(key, advice) {
		advice = ""
	}
	return []slog.Attr{slog.String("class", e.Class), slog.String("error", text), slog.String("advice", advice)}
}

// isIn reports whether a text tells whose key it is.
func isIn(k *store.Key, text string) bool {
	if k.Addr.IsValid() {
		return strings.Contains(text, k.Addr.String())
	}
	return k.Kind != "all" && k.Text != "" && strings.Contains(text, k.Text)
}
