package core_test

import (
	"testing"

	"github.com/sashlimit/sash/core"
)

// A handler has the decision only if its limiter says so, and the inner limiter's if there are two.
func TestDecisionFrom(t *testing.T) {
	check := func(name string, opts ...core.Option) core.Decision {
		l := newLimiterBy(t, core.PerHour(5), core.Global(), append(opts, core.WithName(name))...)
		d := checkOnce(t, l, from("192.0.2.1:1"), true)
		return d
	}
	silent, outer := check("silent"), check("outer", core.WithDecisionInContext())
	inner := check("inner", core.WithDecisionInContext())
	ctx, asked := silent.Context(t.Context())
	if _, ok := core.DecisionFrom(ctx); asked || ok || ctx != t.Context() {
		t.Error("a decision without WithDecisionInContext")
	}
	ctx, _ = outer.Context(ctx)
	ctx, _ = silent.Context(ctx)
	ctx, _ = inner.Context(ctx)
	if got, ok := core.DecisionFrom(ctx); !ok || got.Policy != "inner" || got.Remaining != 4 {
		t.Errorf("%v, %v, want the inner limiter's", got, ok)
	}
}
