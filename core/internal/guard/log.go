package guard

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sashlimit/sash/core/store"
)

const logInterval = 10 * time.Second // at least, between two outages that are logged

// classProcess is the Class of an error that says nothing about the store.
const (
	classProcess  = "process"
	adviseProcess = "find out why this process had no CPU time: GOMAXPROCS, a CPU limit of its container, " +
		"garbage collection, too many goroutines that compute, or other programs"
)

// outageLog logs when the store stops to answer, at the first call that fails, and when it answers again.
type outageLog struct {
	policy, failure string
	outages         atomic.Uint64 // of the breaker

	unended atomic.Bool // the beginning of the latest outage was logged, and its end was not; set under the lock

	mu      sync.Mutex
	failing bool      // the store has stopped to answer
	logged  time.Time // when the beginning of an outage was last logged
	stall   time.Time // when a stall was last logged
	skipped int       // lines not logged, or only later, since the last one that was
}

// failed notes that a call has failed. isFailing reports whether another one has succeeded meanwhile.
func (l *outageLog) failed(class string, isFailing func() bool, attrs func() []slog.Attr) {
	if l.unended.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.unended.Load() || !isFailing():
	case time.Since(l.logged) >= logInterval: // also if the outage has begun before, and goes on
		l.failing, l.logged = true, time.Now()
		l.unended.Store(true)
		text := "sash: the store does not answer, so the failure policy decides"
		if class == classProcess {
			text = "sash: this process could not run, and has missed the store's answer, so the failure policy decides"
		}
		l.log(slog.LevelError, text, attrs()...)
	case !l.failing:
		l.failing = true
		l.skipped++
	}
}

// succeeded notes that a call has succeeded after others had failed.
func (l *outageLog) succeeded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.unended.Swap(false):
		l.log(slog.LevelInfo, "sash: the store answers again")
	case l.failing:
		l.skipped++
	}
	l.failing = false
}

// stalled logs that this process could not run while requests waited.
func (l *outageLog) stalled(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.stall) < logInterval {
		return
	}
	l.stall = time.Now()
	l.log(slog.LevelWarn, "sash: this process could not run for longer than a decision may take, so decisions are late",
		slog.Duration("stalled", d), slog.String("advice", adviseProcess))
}

func (l *outageLog) log(level slog.Level, text string, more ...slog.Attr) {
	attrs := []slog.Attr{slog.String("policy", l.policy), slog.String("failure", l.failure)}
	if l.skipped > 0 {
		attrs = append(attrs, slog.Int("lines left out", l.skipped))
	}
	l.skipped = 0
	slog.Default().LogAttrs(context.Background(), level, text, append(attrs, more...)...)
}

// logAttrs returns what is logged of an error. The identities of the takes must not appear in the log. An error without
// a class was not classified by its store, and its text may contain any part of the call, so only its types are logged.
func logAttrs(e *store.StoreError, takes []store.Take) []slog.Attr {
	text, advice := store.ErrorTypes(e.Err), e.Advice
	if e.Err != nil && e.Class != "" && !hasIdentity(e.Err.Error(), takes) {
		text = e.Err.Error()
	}
	if hasIdentity(advice, takes) {
		advice = ""
	}
	return []slog.Attr{slog.String("class", e.Class), slog.String("error", text), slog.String("advice", advice)}
}

// hasIdentity reports whether a text contains one of the takes' identities.
func hasIdentity(text string, takes []store.Take) bool {
	for i := range takes {
		k := &takes[i].Key
		if k.Addr.IsValid() && strings.Contains(text, k.Addr.String()) ||
			k.Kind != "all" && k.Text != "" && hasWords(text, k.Text) {
			return true
		}
	}
	return false
}

// hasWords reports whether a text contains words, and not only as a part of longer ones: a user 7 is not in port 6379.
func hasWords(text, words string) bool {
	isPart := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
	first, _ := utf8.DecodeRuneInString(words)
	last, _ := utf8.DecodeLastRuneInString(words)
	for at := 0; ; at++ {
		i := strings.Index(text[at:], words)
		if i < 0 {
			return false
		}
		at += i
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		after, _ := utf8.DecodeRuneInString(text[at+len(words):])
		if !(isPart(before) && isPart(first)) && !(isPart(last) && isPart(after)) {
			return true
		}
	}
}
