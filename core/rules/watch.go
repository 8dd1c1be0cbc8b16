package rules

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// interval is how often Watch looks at the file.
const interval = 250 * time.Millisecond

// Watch loads the file again when it changes, until ctx ends. It then returns nil. What is loaded is logged through
// [slog.Default], with its [Set.Hash]. A file with mistakes has no effect: the rules in force remain, the mistakes are
// logged once, and observers get an event ([event.ReloadFailed]).
//
// It reads the file four times a second, and loads what it has found twice in a row, because editors write in several
// steps. So it sees an edit in place, a file that was replaced, and a link that was changed, as Kubernetes does for a
// ConfigMap. It tries again while the file cannot be read. An error means that the set has no file.
//
// Meanwhile it tells other processes which version of the file is in force; see [Set.Versions]. It handles no signals:
// a program that reloads on SIGHUP calls [Set.Reload].
func (s *Set) Watch(ctx context.Context) error {
	if s.path == "" {
		return errors.New("rules: a set made by Parse has no file to watch; use Load")
	}
	looks := time.NewTicker(interval)
	defer looks.Stop()
	process := rand.Text()
	defer s.tell(context.WithoutCancel(ctx), process, nil)
	var told *document
	var at time.Time // when
	for seen := ""; ; {
		if doc := s.active.Load(); doc != told || time.Since(at) >= tellEvery {
			told, at = doc, time.Now()
			s.tell(ctx, process, doc)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-looks.C:
			content, _ := os.ReadFile(s.path) // nothing if it cannot be read, which reload reports
			before := seen
			if seen = hashOf(content); seen == before && seen != s.last.Load() {
				s.reload(ctx) //nolint:errcheck // it is logged
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
	return s.reload(context.Background())
}

func (s *Set) reload(ctx context.Context) error {
	doc, err := s.load()
	if err != nil {
		slog.Default().ErrorContext(ctx, "sash: the rules file has mistakes, so the previous rules stay in force",
			"file", s.name, "mistakes", err.Error(), "remedy", "correct them and save the file")
	} else {
		slog.Default().InfoContext(ctx, "sash: the rules of a file are in force",
			"file", s.name, "rules", len(doc.rules), "hash", doc.hash)
	}
	s.limiter.Inside().Reloaded(ctx, err) // without the lock, since an observer may call Reload
	return err
}

// load puts the rules of the file in force unless it has mistakes.
func (s *Set) load() (doc *document, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	content, err := os.ReadFile(s.path)
	if s.last.Store(hashOf(content)); err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	f := &faults{file: s.name}
	doc = s.read(content, parse(content, f))
	if err = f.err(); err == nil {
		s.active.Store(doc)
	}
	return doc, err
}
