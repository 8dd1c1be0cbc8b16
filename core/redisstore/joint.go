package redisstore

import (
	"context"
	"time"

	"github.com/sashlimit/sash/core/internal/redisclient"
	"github.com/sashlimit/sash/core/store"
)

// TakeAll implements [store.Joint]. If one script may use all logs of the request, it decides in one step.
func (s *redisStore) TakeAll(ctx context.Context, takes []store.Take, answers []store.Answer) error {
	if err := store.ValidateAll(takes, answers); err != nil {
		return err
	}
	cost := takes[0].Cost
	if err := redisclient.CheckCost(cost); err != nil {
		return err
	}
	if len(takes) == 1 {
		var err error
		answers[0], err = s.Logs.Take(ctx, takes[0])
		return err
	}
	keys, id, together, err := s.Logs.TakeAll(ctx, takes, answers)
	if together {
		return err
	}
	r := inTurn{
		store: s, takes: takes, answers: answers, keys: keys, id: id, cost: cost, began: time.Now(),
	}
	return r.run(ctx)
}
