package core

import "github.com/sashlimit/sash/core/internal/setup"

// ForgetSharing has limiters that were made before forgotten, and what was logged of them.
func ForgetSharing() { sharers = new(setup.Sharers) }

// Sharers is how many limiters are remembered.
func Sharers() int { return sharers.Len() }
