package core_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests that docs/proof.md names exist.
func TestProofNamesTests(t *testing.T) {
	text, err := os.ReadFile("../docs/proof.md")
	must(t, err)
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	exists := map[string]bool{}
	err = filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		dir, _ := filepath.Abs(filepath.Dir(path))
		for _, f := range function.FindAllSubmatch(source, -1) {
			exists[filepath.Base(dir)+"."+string(f[1])] = true
		}
		return err
	})
	must(t, err)
	names := regexp.MustCompile(`\w+\.(?:Test|Fuzz)\w+`).FindAllString(string(text), -1)
	for _, name := range names {
		if !exists[name] {
			t.Errorf("there is no %s: name the test that proves this in docs/proof.md", name)
		}
	}
	if len(names) < 50 {
		t.Errorf("%d names: this test has tested too little", len(names))
	}
}
