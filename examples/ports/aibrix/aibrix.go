// Package aibrix limits requests and tokens of each user, as the gateway of AIBrix does.
package aibrix

import (
	"cmp"
	"context"

	"github.com/sashlimit/sash/core"
)

// User is who sends a request, and how much it may use a minute.
type User struct {
	Name     string
	Rpm, Tpm int64
}

type userKey struct{}

// Server limits users.
type Server struct{ ratelimiter *core.Limiter }

// NewServer returns a server whose processes share a store.
func NewServer(store core.Store) (*Server, error) {
	limits := func(ctx context.Context) core.Limits {
		user, _ := ctx.Value(userKey{}).(User)
		return core.Limits{core.PerMinute(int(user.Rpm)), core.PerMinute(int(user.Tpm)).Of("tokens")}
	}
	l, err := core.New(core.LimitBy(limits), core.Global(), core.WithName("aibrix"), core.WithStore(store))
	return &Server{l}, err
}

// CheckLimits takes a request and reserves the tokens that it may take, both or neither. The error of a denial is a
// [core.LimitedError].
func (s *Server) CheckLimits(ctx context.Context, user User, tokens int64) (core.Decision, error) {
	costs := core.Costs{"tokens": int(max(tokens, 1))}
	d, err := s.ratelimiter.AllowCosts(context.WithValue(ctx, userKey{}, user), user.Name, costs)
	return d, cmp.Or(err, d.Err())
}

// CountTokens settles how many tokens a request has taken.
func CountTokens(ctx context.Context, d core.Decision, total int64) error {
	return d.SettleCosts(context.WithoutCancel(ctx), core.Costs{"tokens": int(total)})
}
