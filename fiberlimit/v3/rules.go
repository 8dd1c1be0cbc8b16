package fiberlimit

import (
	"github.com/gofiber/fiber/v3"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/adapter"
)

// Rules limits what the handlers behind it serve by the rules of a file. set is a *rules.Set of package rules. The
// options are [WithDeny], [WithError] and [core.WithHeaders]. It panics on a wrong option, and if set is nil.
func Rules(set core.RuleSet, opts ...core.Option) fiber.Handler {
	return From(core.LimiterOf(set, opts...))
}

// Explain tells what the rules of a set say about a request: set is a *rules.Set, and E is rules.Explanation.
func Explain[E any](set adapter.Explainer[E], c fiber.Ctx) E { return set.Explain(request{c}) }
