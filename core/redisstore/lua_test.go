package redisstore_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The linter knows Go alone.
func TestLuaLinesAreShort(t *testing.T) {
	const most = 120
	files, err := filepath.Glob("lua/*.lua")
	if err != nil || len(files) < 40 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		number := 0
		for line := range strings.Lines(string(text)) {
			if number++; len(strings.TrimSuffix(line, "\n")) > most {
				t.Errorf("%s:%d has more than %d columns", file, number, most)
			}
		}
	}
}
