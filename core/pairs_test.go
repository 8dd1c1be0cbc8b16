package core_test

import (
	"os"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/pairs"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/store"
)

// Whatever a user switches on together works, in memory and on a store outside the process.
func TestPairs(t *testing.T) {
	pairs.Run(t, pairs.Config{Requests: testlen.Of(150, 600)})
	pairs.Run(t, pairs.Config{
		Store:    func(*testing.T) store.Store { return &double{Full: core.NewMemoryStore()} },
		Requests: testlen.Of(150, 600),
	})
}

// The table of the documentation is what New refuses.
func TestTableOfPairs(t *testing.T) {
	page, err := os.ReadFile("../docs/options.md")
	if err != nil || !strings.Contains(string(page), pairs.Table()) {
		t.Errorf("docs/options.md lacks the table\n%s%v", pairs.Table(), err)
	}
}
