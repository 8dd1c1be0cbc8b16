package definition

import (
	"testing"

	"github.com/sashlimit/sash/core/internal/testlen"
)

func TestExploreItself(t *testing.T) {
	Explore(t, Config{New: itself}, testlen.Of(2, 3), 0)
}
