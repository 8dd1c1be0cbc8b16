package guard

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/sashlimit/sash/core/internal/errtypes"
	"github.com/sashlimit/sash/core/store"
)

const logInterval = 10 * time.Second // at least, between two outages that are logged

// outageLog logs when the store stops to answer, at the first call that fails, and when it answers again.
type outageLog struct {
	policy, failure string

	logged atomic.Bool // the beginning of the latest outage, but not its end; set under the lock

	mu   sync.Mutex
	last time.Time // when the beginning of an outage was last logged
	lost uint64    // units, of which a line has told
}

// failed notes that a call about a key has failed. isFailing reports whether another one was answered meanwhile. It
// does not wait while a line is written: the next call that fails is logged then.
func (l *outageLog) failed(err *store.StoreError, k *store.Key, isFailing func() bool) {
	if l.logged.Load() || !l.mu.TryLock() {
		return
	}
	defer l.mu.Unlock()
	if l.logged.Load() || !isFailing() || time.Since(l.last) < logInterval {
		return
	}
	l.last = time.Now()
	l.logged.Store(true)
	l.log(slog.LevelError, "sash: the store does not answer, so the failure policy decides",
		slog.String("class", err.Class), slog.String("error", textOf(err, k)),
		slog.String("advice", unlessNames(err.Advice, k, "")))
}

// answered notes that a call was answered after others had failed, when so many units were lost.
func (l *outageLog) answered(lost uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.logged.Swap(false):
	case lost > l.lost:
		l.log(slog.LevelWarn, "sash: the store answers again, and will not know of all that was admitted without it",
			slog.Uint64("units", lost-l.lost),
			slog.String("advice", "the outage had more keys than WithFailLocalKeys has room for"))
		l.lost = lost
	default:
		l.log(slog.LevelInfo, "sash: the store answers again")
	}
}

func (l *outageLog) log(level slog.Level, text string, more ...slog.Attr) {
	attrs := append([]slog.Attr{slog.String("policy", l.policy), slog.String("failure", l.failure)}, more...)
	slog.Default().LogAttrs(context.Background(), level, text, attrs...)
}

// textOf returns what may be logged of an error: nothing that tells whose key it is about. One without a class was not
// classified by its store, and its text may contain any part of the call.
func textOf(err *store.StoreError, k *store.Key) string {
	types := errtypes.Of(err.Err)
	if err.Class == "" || err.Err == nil {
		return types
	}
	return unlessNames(err.Err.Error(), k, types)
}

// unlessNames returns a text, or another one if that contains the identity of the key. It is compared by words: a user
// 7 is not in port 6379.
func unlessNames(text string, k *store.Key, instead string) string {
	if strings.Contains(words(text), words(k.Label())) {
		return instead
	}
	return text
}

// words returns the words of a text, each between two spaces.
func words(text string) string {
	between := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
	return " " + strings.Join(strings.FieldsFunc(text, between), " ") + " "
}
