package definition

import (
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

func TestBounds(t *testing.T) {
	Bounds(t, Config{Operations: testlen.Of(5000, 50_000), New: forwards})
}

// forwards returns the definition with a clock that cannot be set back.
func forwards(t *testing.T) Clocked {
	c := itself(t)
	advance := c.Advance
	c.Advance = func(d time.Duration) { advance(max(d, 0)) }
	return c
}

// The definition knows nothing of clocks that are set back: it makes callers wait for entries of the future.
func TestBoundsFindMistakes(t *testing.T) {
	for want, c := range map[string]Config{
		"a wait of": {New: itself},
		"units": {New: func(t *testing.T) Clocked {
			c := forwards(t)
			c.Store = &wrong{Store: c.Store.(*Store), take: under(func(t *store.Take) { t.Limit.Quota *= 4 })}
			c.Advance(time.Hour)
			return c
		}},
	} {
		c.Operations = 50_000
		if failure := c.bounds(t); !strings.Contains(failure, want) {
			t.Errorf("%s; want %s", failure, want)
		}
	}
}
