package rules

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// interval is how often Watch looks at the file.
const interval = 250 * time.Millisecond

// Watch loads the file again when it changes, and when the process gets a SIGHUP, until ctx ends. It then returns nil.
// A file with mistakes has no effect: the rules in force remain, the mistakes are logged once through [slog.Default],
// and observers get an event ([event.ReloadFailed]). Other processes with the same file reload by themselves; until all
// have, they decide by different rules on the same logs.
//
// It checks the file four times a second and follows links, so it detects a file that was replaced by an editor, or by
// Kubernetes, which changes a link of a ConfigMap. It reads the file when two checks in a row find it the same, because
// editors write it in several steps, and again while it cannot be read. An error means that the set has no file.
func (s *Set) Watch(ctx context.Context) error {
	if s.path == "" {
		return errors.New("rules: a set made by Parse has no file to watch; use Load")
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	looks := time.NewTicker(interval)
	defer looks.Stop()
	var seen os.FileInfo
	for changed := true; ; { // it may have changed since it was loaded
		select {
		case <-ctx.Done():
			return nil
		case <-hangup:
			s.reload(ctx, true) //nolint:errcheck // reload logs it
		case <-looks.C:
			now, _ := os.Stat(s.path) // nil if it is missing, which reload reports
			if !isSame(seen, now) {
				seen, changed = now, true
			} else if changed {
				err := s.reload(ctx, false) // which logs it
				changed = errors.As(err, new(*fs.PathError))
			}
		}
	}
}

func isSame(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// Reload loads the file again. If it has mistakes, the rules in force remain, and the error has all mistakes.
func (s *Set) Reload() error {
	if s.path == "" {
		return errors.New("rules: a set made by Parse has no file to reload; use Load")
	}
	return s.reload(context.Background(), true)
}

// reload loads the file again unless it is that of the rules in force. asked says that mistakes are reported again that
// were reported before.
func (s *Set) reload(ctx context.Context, asked bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	content, err := os.ReadFile(s.path)
	if err != nil {
		return s.keepOld(ctx, "unreadable", fmt.Errorf("rules: %w", err), asked)
	}
	hash := hashOf(content)
	if hash == s.Hash() && !asked {
		s.failed = ""
		return nil
	}
	made, err := s.read(content)
	if err != nil {
		return s.keepOld(ctx, hash, err, asked)
	}
	s.failed = ""
	s.active.Store(made)
	engine.Reloaded(ctx, s.limiter, nil)
	return nil
}

// keepOld reports why the rules of a file are not taken over. Mistakes that were reported are reported again only if
// asked.
func (s *Set) keepOld(ctx context.Context, hash string, err error, asked bool) error {
	if s.failed == hash && !asked {
		return err
	}
	s.failed = hash
	slog.Default().ErrorContext(ctx, "sash: the rules file has mistakes, so the previous rules stay in force",
		"file", s.name, "mistakes", err.Error(), "remedy", "correct them and save the file")
	engine.Reloaded(ctx, s.limiter, err)
	return err
}
