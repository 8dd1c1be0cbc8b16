package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mutant is a mistake that a test is to find.
type mutant struct {
	list, name string
	file       string   // in which lines are replaced
	before     []string // these lines, without leading white space
	after      []string // by these
	test       test
}

// test is a test that go test runs by itself.
type test struct{ pkg, name string }

func (t test) String() string { return t.pkg + " " + t.name }

// pattern returns what go test -run takes for the test.
func (t test) pattern() string {
	parts := strings.Split(t.name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// readLists returns the mutants of all lists in a folder that args select: by the name of a list or by a part of their
// own name. Without args these are all.
func readLists(dir string, args []string) (selected []mutant, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path) //nolint:gosec // a list of this repository
		if err != nil {
			return nil, err
		}
		all, err := parse(strings.TrimSuffix(filepath.Base(path), ".txt"), string(text))
		if err != nil {
			return nil, err
		}
		for _, m := range all {
			isSelected := func(arg string) bool { return arg == m.list || strings.Contains(m.name, arg) }
			if len(args) == 0 || slices.ContainsFunc(args, isSelected) {
				selected = append(selected, m)
			}
		}
	}
	if len(selected) == 0 {
		return nil, fmt.Errorf("no mistake in %s is selected by %q", dir, args)
	}
	return selected, nil
}

// parse returns the mutants of a list. A block without a file is a comment.
func parse(list, text string) (all []mutant, err error) {
	for i, block := range regexp.MustCompile(`\n\s*\n`).Split(strings.TrimSpace(text), -1) {
		m, err := parseBlock(block)
		if err != nil {
			return nil, fmt.Errorf("%s.txt, block %d: %w", list, i+1, err)
		}
		if m.list = list; m.file != "" {
			all = append(all, m)
		}
	}
	return all, nil
}

func parseBlock(block string) (m mutant, err error) {
	for line := range strings.Lines(block) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest = strings.TrimSpace(rest)
		switch word {
		case "#":
			m.name = strings.TrimSpace(m.name + " " + rest)
		case "file":
			m.file = rest
		case "-":
			m.before = append(m.before, rest)
		case "+":
			m.after = append(m.after, rest)
		case "test":
			m.test.pkg, m.test.name, _ = strings.Cut(rest, " ")
		default:
			return m, fmt.Errorf("%q begins with none of # file - + test", strings.TrimSpace(line))
		}
	}
	switch {
	case m.file == "" && m.before == nil && m.after == nil && m.test.pkg == "": // a comment
	case m.name == "" || m.file == "" || len(m.before) == 0 || m.test.name == "":
		return m, errors.New("a mistake has a name, a file, lines that it replaces, and a package and test")
	}
	return m, nil
}

// apply returns the text of the mutant's file with the mistake. Leading white space does not matter.
func (m *mutant) apply(text string) (string, error) {
	lines := make([]string, len(m.before))
	for i, line := range m.before {
		lines[i] = `[ \t]*` + regexp.QuoteMeta(line)
	}
	found := regexp.MustCompile(`(?m)^`+strings.Join(lines, `\n`)+`$`).FindAllStringIndex(text, -1)
	if len(found) != 1 {
		return "", fmt.Errorf("%s has the lines %d times", m.file, len(found))
	}
	return text[:found[0][0]] + strings.Join(m.after, "\n") + text[found[0][1]:], nil
}
