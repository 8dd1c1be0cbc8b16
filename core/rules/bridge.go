package rules

import (
	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/bridge"
)

type (
	choice   = bridge.Choice[core.Key]
	prepared = bridge.Prepared
	toAsk    = bridge.Rule[core.Key, core.Limit, core.Failure]
	names    = func(*choice) (bool, error) // reports whether a list names the client of a request
)

// engine is what package core does for this package.
var engine = bridge.Core.(*bridge.Rules[ //nolint:forcetypeassert // core sets it
	*core.Limiter, core.Option, core.Key, core.Limit, core.Failure, core.Decision,
])
