package examples_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents are all files that link to each other.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"../*.md", "../docs/*.md", "recipes/*.md", "../core/*/*.md", "../core/*/*/*.md"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts[path] = string(text)
		}
	}
	return texts
}

// anchors are the names that GitHub gives to the headings of a document.
func anchors(text string) (names []string) {
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// Links within the repository lead to files and headings that exist.
func TestLinks(t *testing.T) {
	texts := documents(t)
	code := regexp.MustCompile("(?ms)^ *```.*?^ *```$|`[^`]*`")
	links := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for path, text := range texts {
		for _, link := range links.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			file, anchor, _ := strings.Cut(link[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", path, link[1], err)
			} else if anchor != "" && !slices.Contains(anchors(texts[target]), anchor) {
				t.Errorf("%s links to %s: there is no such heading", path, link[1])
			}
		}
	}
}

// Lines of the log that docs/troubleshooting.md quotes, as code within quotation marks, are in the source below core.
func TestQuotedLogLines(t *testing.T) {
	var source bytes.Buffer
	err := filepath.WalkDir("../core", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path) //nolint:gosec // of this repository
		source.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	quotes := regexp.MustCompile("`\"([^`\"]+)\"`").FindAllSubmatch(text, -1)
	if len(quotes) == 0 {
		t.Error("docs/troubleshooting.md quotes no line")
	}
	for _, quote := range quotes {
		line := regexp.MustCompile(`\s+`).ReplaceAllString(string(quote[1]), " ") // it may go over two lines
		for _, part := range regexp.MustCompile(`\d{3}\)(: )?`).Split(line, -1) { // a status is filled in
			if !bytes.Contains(source.Bytes(), []byte(part)) {
				t.Errorf("docs/troubleshooting.md quotes %q, and %q is not in the source below core", line, part)
			}
		}
	}
}
