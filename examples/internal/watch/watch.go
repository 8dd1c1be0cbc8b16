// Package watch loads rules again for the examples that have a file of them.
package watch

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/sashlimit/sash/core/rules"
)

// Rules loads the file of a set again when it changes, and when the process gets a SIGHUP, until ctx ends. The set logs
// what is wrong with the file.
func Rules(ctx context.Context, set *rules.Set) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	go func() {
		for range hangup {
			set.Reload() //nolint:errcheck // it is logged
		}
	}()
	if err := set.Watch(ctx); err != nil {
		slog.Error("the rules are not loaded again when they change", "error", err)
	}
}
