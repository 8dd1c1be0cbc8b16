package rules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"
)

// interval is how often Watch looks at the file.
const interval = 250 * time.Millisecond

// Watch loads the file again when it changes, until ctx ends. It then returns nil. What is loaded is logged through
// [slog.Default], with its [Set.Hash]. A file with mistakes has no effect: the rules in force remain, the mistakes are
// logged once, and observers get an event ([event.ReloadFailed]). Other processes with the same file reload by
// themselves; until all have, they decide by different rules on the same logs.
//
// It reads the file four times a second, and loads what it has found twice in a row, because editors write in several
// steps. So it needs no help of the file system: it also sees an edit in place, a file that was replaced, and a link
// that was changed, as Kubernetes does for a ConfigMap. It tries again while the file cannot be read. An error means
// that the set has no file.
//
// Meanwhile it tells other processes which version of the file is in force; see [Set.Versions].
//
// It handles no signals. A program that reloads on SIGHUP calls [Set.Reload].
func (s *Set) Watch(ctx context.Context) error {
	if s.path == "" {
		return errors.New("rules: a set made by Parse has no file to watch; use Load")
	}
	looks := time.NewTicker(interval)
	defer looks.Stop()
	t := newTeller(s)
	defer t.end(ctx)
	var seen []byte
	for changed := true; ; { // it may have changed since it was loaded
		t.tell(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-looks.C:
			now, _ := os.ReadFile(s.path) // nil if it cannot be read, which reload reports
			if !bytes.Equal(seen, now) {
				seen, changed = now, true
			} else if changed {
				err := s.reload(ctx, false) // which logs it
				changed = errors.As(err, new(*fs.PathError))
			}
		}
	}
}

// Reload loads the file again. If it has mistakes, the rules in force remain, and the error has all mistakes. An
// observer may call it, but not for each event that it causes.
func (s *Set) Reload() error {
	if s.path == "" {
		return errors.New("rules: a set made by Parse has no file to reload; use Load")
	}
	return s.reload(context.Background(), true)
}

// reload loads the file again unless that has been done. asked says that it is loaded in any case, and that mistakes
// are reported again that were reported before.
func (s *Set) reload(ctx context.Context, asked bool) error {
	made, again, err := s.load(asked)
	switch {
	case !again && !asked:
		return err
	case err != nil:
		slog.Default().ErrorContext(ctx, "sash: the rules file has mistakes, so the previous rules stay in force",
			"file", s.name, "mistakes", err.Error(), "remedy", "correct them and save the file")
	default:
		slog.Default().InfoContext(ctx, "sash: the rules of a file are in force",
			"file", s.name, "rules", len(made.rules), "hash", made.hash)
	}
	s.limiter.Inside().Reloaded(ctx, err) // without the lock, since an observer may call Reload
	return err
}

// load puts the rules of the file in force. It reports whether the file is another one than at the last call, and if
// not, does nothing unless asked.
func (s *Set) load(asked bool) (made *document, again bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	content, err := os.ReadFile(s.path)
	hash := "unreadable"
	if err != nil {
		err = fmt.Errorf("rules: %w", err)
	} else if hash = hashOf(content); hash != s.last || asked {
		f := &faults{file: s.name}
		made = s.read(content, f)
		s.prepare(made, f)
		err = f.err()
	}
	if again = hash != s.last; err == nil && made != nil {
		s.active.Store(made)
	}
	s.last = hash
	return made, again, err
}
