package rules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long a file is left alone after it has changed, because editors write it in several steps.
const settle = 100 * time.Millisecond

// Watch loads the file again when it changes, and when the process gets a SIGHUP, until ctx ends. It then returns nil.
// A file with mistakes is not taken over: the rules in force remain, the mistakes are logged once through
// [slog.Default], and observers get an event ([event.ReloadFailed]). Another process of the same rules reloads by
// itself; meanwhile each decides by its own rules on the same logs.
//
// The file's directory is watched, so that a file which is replaced is seen: by an editor, or by Kubernetes, which
// changes a link of a ConfigMap. An error means that it cannot be watched.
func (s *Set) Watch(ctx context.Context) error {
	if s.path == "" {
		return errors.New("rules: a set made by Parse has no file to watch; use Load")
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("rules: %s cannot be watched: %w", s.path, err)
	}
	defer w.Close()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	if err := s.watchDirs(w); err != nil {
		return err
	}
	s.reload(ctx, false) //nolint:errcheck // it may have changed since it was loaded; reload logs the error
	changed := time.NewTimer(time.Hour)
	changed.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangup:
			s.reload(ctx, true) //nolint:errcheck // reload logs it
		case _, ok := <-w.Events:
			if !ok {
				return fmt.Errorf("rules: %s is no longer watched", s.path)
			}
			changed.Reset(settle)
		case err := <-w.Errors: // such as too many events at once
			slog.Default().WarnContext(ctx, "sash: the directory of the rules file could not be read", "error", err)
			changed.Reset(settle)
		case <-changed.C:
			if err := s.watchDirs(w); err != nil {
				slog.Default().WarnContext(ctx, "sash: the directory of the rules file could not be watched", "error",
					err)
			}
			s.reload(ctx, false) //nolint:errcheck // reload logs it
		}
	}
}

// watchDirs watches the directories of the file and of all links that lead to it.
func (s *Set) watchDirs(w *fsnotify.Watcher) error {
	if err := w.Add(filepath.Dir(s.path)); err != nil {
		return fmt.Errorf("rules: %s cannot be watched: %w", s.path, err)
	}
	path := s.path
	for range maxLinks {
		target, err := os.Readlink(path)
		if err != nil { // it is no link, or is missing now and may come
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
		w.Add(filepath.Dir(path)) //nolint:errcheck // a change of the links before is seen all the same
	}
	return nil //nolint:nilerr // Readlink fails at the end of the links
}

// maxLinks is how many links of a file are followed.
const maxLinks = 40

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
	made, err := s.read(content, s.limiter)
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
