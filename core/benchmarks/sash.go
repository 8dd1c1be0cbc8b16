package main

import (
	"context"
	"errors"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/redisstream"
)

// sash returns a contestant of this module. To measure other limits, another store or other options, add a line to
// a list of contestants.
func sash(name string, limits func(limit) core.Limits, store func(limit) core.Store, opts ...core.Option) contestant {
	return contestant{name, exact, func(l limit) (limiter, error) {
		// Allow brings its own key, so this function is never asked for one.
		key := core.By(func(context.Context) (string, error) { return "", core.ErrNoKey })
		// The timeout is long, so that a busy machine is not taken for an outage.
		with := []core.Option{core.WithStore(store(l)), core.WithTimeout(time.Second)}
		lim, err := core.New(limits(l), key, append(with, opts...)...)
		if err != nil {
			return limiter{}, err
		}
		check := func(ctx context.Context, key string) (bool, error) {
			d, err := lim.Allow(ctx, key)
			if d.Degraded { // decided in this process, which would be other work
				err = errors.Join(err, errors.New("decided without the store"))
			}
			return d.Allowed, err
		}
		return limiter{check, func() { lim.Close() }}, nil
	}}
}

func one(l limit) core.Limits { return core.Limits{{Quota: l.quota, Window: l.window}} }

// using is one with another algorithm.
func using(a core.Algorithm) func(limit) core.Limits {
	return func(l limit) core.Limits { return core.Limits{one(l)[0].With(a)} }
}

// bucketOf is a bucket of the quota that is full again after a window.
func bucketOf(l limit) core.Limits { return core.Limits{core.TokenBucket(one(l)[0], l.quota)} }

// two adds a limit of a longer window. Of a load that uses half of the first it admits all.
func two(l limit) core.Limits {
	return append(one(l), core.Limit{Quota: 3 * l.quota / 2, Window: 2 * l.window})
}

func remote(rdb redisstore.Client) func(limit) core.Store {
	var opts []redisstore.Option
	if _, ok := rdb.(*inStep); ok { // whose type the store does not know
		opts = append(opts, redisstore.WithOneServer())
	}
	return func(limit) core.Store { return redisstore.New(rdb, opts...) }
}

func streams(rdb redisstream.Client) func(limit) core.Store {
	var opts []redisstream.Option
	if _, ok := rdb.(*inStep); ok {
		opts = append(opts, redisstream.WithOneServer())
	}
	return func(limit) core.Store { return redisstream.New(rdb, opts...) }
}

func local(l limit) core.Store {
	return core.NewMemoryStore(core.WithMaxKeys(max(1<<18, 2*l.keys)))
}
