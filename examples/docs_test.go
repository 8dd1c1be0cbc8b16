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

	"github.com/sashlimit/sash/core/redisstore"
)

// documents are all files that link to each other.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{
		"../*.md", "../llms.txt", "../docs/*.md", "../docs/*/*.md", "recipes/*.md",
		"../core/*/*.md", "../core/*/*/*.md",
	} {
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

// Each row of a table has as many cells as its head.
func TestTables(t *testing.T) {
	code := regexp.MustCompile("(?ms)^ *```.*?^ *```$|`[^`\n]*`")
	for path, text := range documents(t) {
		cells := 0
		for line := range strings.Lines(code.ReplaceAllString(text, "")) {
			if !strings.HasPrefix(line, "|") {
				cells = 0
				continue
			}
			n := strings.Count(line, "|")
			if cells == 0 {
				cells = n
			}
			if n != cells {
				t.Errorf("%s: a row of %d cells below a head of %d: %s", path, n-1, cells-1, line)
			}
		}
	}
}

// The table of faults in docs/operating.md has all classes of the store's errors, and no other.
func TestClassesOfFaults(t *testing.T) {
	classes := []string{
		redisstore.ClassTimeout, redisstore.ClassRefused, redisstore.ClassPool, redisstore.ClassAuth,
		redisstore.ClassReadOnly, redisstore.ClassCluster, redisstore.ClassBusy, redisstore.ClassOOM,
		redisstore.ClassScript, redisstore.ClassType, redisstore.ClassProtocol,
		"replay", // of the guard. ClassCanceled is of callers, not of a fault
	}
	_, table, _ := strings.Cut(documents(t)["../docs/operating.md"], "\n| fault | class |")
	var found []string
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, class := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(cells[2], -1) {
			found = append(found, class[1])
		}
	}
	for _, class := range found {
		if !slices.Contains(classes, class) {
			t.Errorf("docs/operating.md has a class %q, which there is not", class)
		}
	}
	for _, class := range classes {
		if !slices.Contains(found, class) {
			t.Errorf("docs/operating.md has no fault of class %q", class)
		}
	}
}

// README links to every page of docs.
func TestEveryPageIsListed(t *testing.T) {
	readme := documents(t)["../README.md"]
	for _, path := range pages(t)[1:] {
		if link := strings.TrimPrefix(path, "../"); !strings.Contains(readme, "]("+link+")") {
			t.Errorf("README does not link to %s", link)
		}
	}
}

// Each section of the cookbook shows code of the programs that it links to, which have tests.
func TestCookbook(t *testing.T) {
	lines := func(text string) string {
		return "\n" + regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllString(text, "")
	}
	sections := strings.Split(documents(t)["../docs/cookbook.md"], "\n## ")[1:]
	for _, section := range sections {
		heading, _, _ := strings.Cut(section, "\n")
		var programs strings.Builder
		for _, link := range regexp.MustCompile(`\]\(\.\./examples/([\w/]+)\)`).FindAllStringSubmatch(section, -1) {
			files, err := filepath.Glob(link[1] + "/*.go")
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				code, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				programs.WriteString(lines(string(code)))
			}
		}
		blocks := regexp.MustCompile("(?s)\n```go\n(.*?)\n```\n").FindAllStringSubmatch(section, -1)
		if len(blocks) == 0 {
			t.Errorf("%s: the section shows no code", heading)
		}
		for _, block := range blocks {
			if !strings.Contains(programs.String(), lines(block[1])+"\n") {
				t.Errorf("%s: no program that the section links to has this:\n%s", heading, block[1])
			}
		}
	}
	if len(sections) < 7 {
		t.Errorf("the cookbook has %d sections", len(sections))
	}
}

// The tables of docs/compare.md have figures of the benchmarks, row by row: those of a row are in rows of the same
// name there.
func TestComparedFigures(t *testing.T) {
	texts := documents(t)
	rows := func(path string) [][]string {
		var all [][]string
		for line := range strings.Lines(texts[path]) {
			if cells := strings.Split(line, "|"); len(cells) > 3 {
				for i := range cells {
					cells[i] = strings.TrimSpace(cells[i])
				}
				all = append(all, cells[1:len(cells)-1])
			}
		}
		return all
	}
	measured := map[string]map[string]bool{}
	for _, row := range rows("../core/benchmarks/README.md") {
		if measured[row[0]] == nil {
			measured[row[0]] = map[string]bool{}
		}
		for _, cell := range row[1:] {
			figure, _, _ := strings.Cut(cell, " (") // and its ratio to another
			measured[row[0]][figure] = true
		}
	}
	figures := 0
	for _, row := range rows("../docs/compare.md") {
		for _, cell := range row[1:] {
			if row[0] == "" || cell == "" || cell[0] < '0' || cell[0] > '9' || measured[row[0]] == nil {
				continue
			}
			if figures++; !measured[row[0]][cell] {
				t.Errorf("docs/compare.md has %s for %q, and the benchmarks have not", cell, row[0])
			}
		}
	}
	if figures < 100 {
		t.Errorf("docs/compare.md has %d figures that the benchmarks have rows for", figures)
	}
}

// Lines of the log that docs/troubleshooting.md quotes, as code within quotation marks, are in the source below core.
func TestQuotedLogLines(t *testing.T) {
	var source bytes.Buffer
	err := filepath.WalkDir("../core", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
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
