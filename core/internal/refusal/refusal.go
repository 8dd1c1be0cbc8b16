// Package refusal logs why the requests of a limiter are refused, and which callbacks have panicked. A line has the
// text of an error only if it is sash's own. Of others it has the types, because their texts may contain an identity.
package refusal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/errtypes"
)

// interval is the shortest time between two lines about one policy and status.
const interval = 10 * time.Second

// Log logs at most one line for each policy and status in an interval. The zero Log is ready for use.
type Log struct {
	mu    sync.Mutex
	lines map[about]*lastLine
}

type about struct {
	policy string
	status int // or 0: not about a request
}

type lastLine struct {
	logged  time.Time
	leftOut int
}

// Refusal is why requests are refused.
type Refusal struct {
	Policy string
	Key    string // name of the function that made the key
	Status int
	Reason string
	Err    error // whose types are logged, or nil
}

// Refused logs why a request was refused.
func (l *Log) Refused(ctx context.Context, r Refusal) {
	level := slog.LevelError
	if r.Status < 500 {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{slog.String("key", r.Key), slog.String("reason", r.Reason)}
	if r.Err != nil {
		attrs = append(attrs, slog.String("error", errtypes.Of(r.Err)))
	}
	text := "sash: a request is refused (" + strconv.Itoa(r.Status) + ")"
	l.log(ctx, about{r.Policy, r.Status}, level, text, r.Err, attrs)
}

// Failed logs that something has failed which refuses no request.
func (l *Log) Failed(ctx context.Context, policy, what string, err error) {
	attrs := []slog.Attr{slog.String("error", errtypes.Of(err))}
	l.log(ctx, about{policy, 0}, slog.LevelError, "sash: "+what, err, attrs)
}

func (l *Log) log(ctx context.Context, a about, level slog.Level, text string, err error, attrs []slog.Attr) {
	leftOut, due := l.due(a)
	if !due {
		return
	}
	attrs = append(attrs, slog.String("policy", a.policy))
	if p := (*adapter.PanicError)(nil); errors.As(err, &p) {
		attrs = append(attrs, slog.String("place", placeOf(p)), slog.String("value", fmt.Sprintf("%T", p.Value)))
	}
	if leftOut > 0 {
		attrs = append(attrs, slog.Int("lines left out", leftOut))
	}
	adapter.Guard(func() error { //nolint:errcheck // a panic of slog's handler cannot be reported
		slog.Default().LogAttrs(ctx, level, text,
			append(attrs, slog.String("remedy", "observers (WithObserver) receive the error itself"))...)
		return nil
	})
}

// due reports whether a line is due, and how many were left out since the last.
func (l *Log) due(a about) (leftOut int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines == nil {
		l.lines = make(map[about]*lastLine)
	}
	last := l.lines[a]
	if last == nil {
		last = new(lastLine)
		l.lines[a] = last
	}
	now := time.Now()
	if !last.logged.IsZero() && now.Sub(last.logged) < interval {
		last.leftOut++
		return 0, false
	}
	leftOut, last.leftOut, last.logged = last.leftOut, 0, now
	return leftOut, true
}

// placeOf returns the nearest function outside of sash and the runtime that led to a panic, with file and line:
// "api.Login api/routes.go:41".
func placeOf(p *adapter.PanicError) string {
	frames := p.Frames()
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); isOutside(&f) {
			dir, file := path.Split(f.File)
			return fmt.Sprintf("%s %s:%d", f.Function, path.Join(path.Base(dir), file), f.Line)
		}
	}
	return "unknown"
}

// isOutside reports whether a frame belongs to neither sash nor the runtime. The tests of sash count as outside, like
// the code of users.
func isOutside(f *runtime.Frame) bool {
	for _, own := range [...]string{"github.com/sashlimit/sash/", "runtime.", "runtime/", "internal/runtime/"} {
		if strings.HasPrefix(f.Function, own) {
			return strings.HasSuffix(f.File, "_test.go")
		}
	}
	return f.Function != ""
}
