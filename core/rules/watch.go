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
		return errors.New("rules: this set was made of a text: use Load for a file that can be watched")
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
			slog.Default().WarnContext(ctx, "sash: the rules' directory could not be read", "error", err)
			changed.Reset(settle)
		case <-changed.C:
			if err := s.watchDirs(w); err != nil {
				slog.Default().WarnContext(ctx, "sash: the rules' directory could not be watched", "error", err)
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

// keepOld tells why the rules of a file are not taken over. A file that was told is told again only if somebody has
// asked for it.
func (s *Set) keepOld(ctx context.Context, hash string, err error, asked bool) error {
	if s.failed == hash && !asked {
		return err
	}
	s.failed = hash
	slog.Default().ErrorContext(ctx, "sash: the file of rules was not taken over, and the rules before remain",
		"file", s.name, "mistakes", err.Error(), "remedy", "correct them and save the file")
	engine.Reloaded(ctx, s.limiter, err)
	return err
}
