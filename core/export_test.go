package core

import "github.com/sashlimit/sash/core/event"

// IsLeased reports whether a decision has spent a unit that was taken ahead.
func IsLeased(d *Decision) bool { return d.result.Source == event.Lease }
