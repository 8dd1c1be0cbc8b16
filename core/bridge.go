package core

import (
	"context"

	"github.com/sashlimit/sash/core/internal/bridge"
	"github.com/sashlimit/sash/core/store"
)

func init() {
	bridge.Core = &bridge.Rules[*Limiter, Option, Key, Limit, Failure, Decision]{
		NewLimiter: newRules,
		Answering:  (*Limiter).answering,
		Prepare:    (*Limiter).prepareAll,
		Joins:      (*Limiter).joins,
		Preview:    (*Limiter).preview,
		Exempt:     (*Limiter).exempt,
		Reloaded:   func(ctx context.Context, l *Limiter, err error) { l.reloaded(ctx, err) },
		NewList:    newRuleList,
		Check:      Key.err,
		Labelled:   Key.labelled,
		FormOf: func(l Limit) bridge.Form {
			return bridge.Form{
				Name: l.defaultName(), InFlight: l.inFlight, Burst: l.algorithm == store.TokenBucket,
				Calendar: l.aligned.isSet(),
			}
		},
	}
	bridge.Windows = windows
	bridge.NameOf = func(l *Limiter) (policy, limits string) {
		if l.namespace == nil {
			return "", ""
		}
		return l.namespace.Policy(), l.limitsText()
	}
}
