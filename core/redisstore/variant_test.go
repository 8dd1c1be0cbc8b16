package redisstore_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/redisstore"
)

// variant runs scripts in which some of the files that they include have other contents. It comes before a [clock],
// which changes the texts of scripts.
type variant struct {
	processor

	contents map[string]string
	texts    *texts
	changed  *atomic.Bool
}

// newVariant returns a variant. The test fails if no script includes such a file.
func newVariant(t *testing.T, c processor, contents map[string]string) variant {
	t.Helper()
	changed := new(atomic.Bool)
	t.Cleanup(func() {
		if !changed.Load() && !t.Failed() {
			t.Errorf("no script includes any of %v", contents)
		}
	})
	return variant{c, contents, new(texts), changed}
}

func (c variant) Process(ctx context.Context, cmd redis.Cmder) error {
	args := cmd.Args()
	if args[0] != "eval" {
		return c.processor.Process(ctx, cmd)
	}
	text := args[1].(string)
	other, known := c.texts.load(text)
	if !known {
		other = redisstore.Variant(text, c.contents)
		c.texts.store(text, other)
		if other != text {
			c.changed.Store(true)
		}
	}
	args[1] = other
	defer func() { args[1] = text }()
	return c.processor.Process(ctx, cmd)
}

// sizes are contents of the file with the sizes from which on scripts choose another way.
func sizes(many, few string) map[string]string {
	return map[string]string{"sizes": "local many = " + many + "\nlocal few = " + few + "\n"}
}
