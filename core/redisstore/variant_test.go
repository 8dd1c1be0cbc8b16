package redisstore_test

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/redisstore"
)

// variant runs scripts in which some of the files that they include have other contents. It comes before a [clock],
// which changes the texts of scripts.
type variant struct {
	processor

	contents map[string]string
	texts    *texts
}

func newVariant(c processor, contents map[string]string) variant {
	for name := range contents {
		redisstore.PartOf(name) // panics if there is none
	}
	return variant{c, contents, new(texts)}
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
	}
	args[1] = other
	defer func() { args[1] = text }()
	return c.processor.Process(ctx, cmd)
}

// sizes are contents of the file with the size from which on scripts choose another way.
func sizes(many string) map[string]string {
	return map[string]string{"sizes": "local many = " + many + "\n"}
}
