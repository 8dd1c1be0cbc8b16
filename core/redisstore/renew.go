package redisstore

import (
	"context"
	"slices"

	"github.com/sashlimit/sash/core/store"
)

var renewScript = newScript("renew")

// renewedAtOnce is how many takes one run of the script renews, so that it does not keep the server busy for long.
const renewedAtOnce = 500

// Renew implements [store.Renewer].
func (s *redisStore) Renew(ctx context.Context, r store.Renewal) error {
	if err := r.Key.Validate(); err != nil {
		return err
	}
	for part := range slices.Chunk(r.IDs, renewedAtOnce) {
		args := make([]any, 0, 1+len(part))
		args = append(args, ttl(r.Keep))
		for _, id := range part {
			args = append(args, idText(id))
		}
		if _, err := s.run(ctx, renewScript, &r.Key, args...); err != nil {
			return err
		}
	}
	return nil
}
