package metricsum

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/store"
)

const (
	mostClasses  = 64 // of [Classes], which a store that names its errors wrongly cannot exceed
	longestClass = 64 // bytes

	// OtherClass is the class of errors that have no class of their own.
	OtherClass = "other"
)

// Classes names errors for metrics, so that a program has a small number of names whatever its errors say. The zero
// value is ready for use.
type Classes struct {
	mu    sync.Mutex
	known []string
}

// Of returns the class of an error, which does not depend on its text: "ok" for nil, that of a [store.StoreError] as it
// is, "panic", "config" for an error of sash's options, "canceled" for a context's end, and rest for any other.
func (s *Classes) Of(err error, rest string) string {
	var failed *store.StoreError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &failed):
		return s.word(failed.Class)
	case errors.As(err, new(*adapter.PanicError)):
		return "panic"
	case errors.As(err, new(*store.ConfigError)):
		return "config"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "canceled"
	}
	return rest
}

// word returns a class as it is, unless it is no word or there are too many.
func (s *Classes) word(class string) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789._-"
	if class == "" || len(class) > longestClass || strings.Trim(class, letters) != "" {
		return OtherClass
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case slices.Contains(s.known, class):
	case len(s.known) >= mostClasses:
		return OtherClass
	default:
		s.known = append(s.known, strings.Clone(class))
	}
	return class
}
