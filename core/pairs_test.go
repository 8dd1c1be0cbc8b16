package core_test

import (
	"os"
	"path/filepath"
	"regexp"
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

// The documentation has a row for each option.
func TestOptionsInDocumentation(t *testing.T) {
	page, err := os.ReadFile("../docs/options.md")
	must(t, err)
	files, err := filepath.Glob("*.go")
	must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		for _, option := range regexp.MustCompile(`(?m)^func (With\w+).* Option \{`).FindAllSubmatch(text, -1) {
			if name := string(option[1]); !strings.Contains(string(page), name) {
				t.Errorf("%s: docs/options.md lacks %s", file, name)
			}
		}
	}
}
