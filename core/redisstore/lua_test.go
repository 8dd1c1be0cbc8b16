package redisstore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core/redisstore"
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

// scriptLimits are how many lines scripts have at most, as they run.
var scriptLimits = map[string]int{
	"take": 400, "take_several": 400, "counter": 400, "joint": 400, "joint_several": 400,
	"take_varied": 700, "take_weighted": 700, "joint_weighted": 900, "book": 850,
}

const (
	mostOfWeights  = 420 // lines of what weights need
	mostOfFunction = 100 // lines of a function, those in it not counted, and of a script outside of all functions
	mostIncludes   = 2   // how deep files include others
)

// Lua can be read as it runs: no script and no function is long, and none is put together from parts of parts of parts.
func TestScriptsAreShort(t *testing.T) {
	for name, most := range scriptLimits {
		lines := strings.Split(strings.TrimSuffix(redisstore.Assembled(name), "\n"), "\n")[1:] // without its name
		if len(lines) > most {
			t.Errorf("%s has %d lines, want %d at most", name, len(lines), most)
		}
		for begin, own := range ownLines(lines) {
			if own > mostOfFunction {
				t.Errorf("%s: %q has %d lines of its own, want %d at most", name, begin, own, mostOfFunction)
			}
		}
	}
	if n := strings.Count(redisstore.Assembled("weights"), "\n") - 1; n > mostOfWeights {
		t.Errorf("weights.lua has %d lines, want %d at most", n, mostOfWeights)
	}
	files, err := filepath.Glob("lua/*.lua")
	if err != nil || len(files) < 30 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if depth := includesIn(t, file); depth > mostIncludes {
			t.Errorf("%s includes %d deep, want %d at most", file, depth, mostIncludes)
		}
	}
}

var (
	luaText = regexp.MustCompile(`'[^']*'|--.*`)
	luaWord = regexp.MustCompile(`\b(function|if|for|while|repeat|do|end|until)\b`)
)

// ownLines counts the lines of each function, named by its first line, without those of functions in it. What is
// outside of all functions is named "".
func ownLines(lines []string) map[string]int {
	var open []string // the innermost function of each block, by the line that it begins with
	innermost := func() string {
		if len(open) == 0 {
			return ""
		}
		return open[len(open)-1]
	}
	all := make(map[string]int)
	for i, line := range lines {
		of, loop := innermost(), false // a line that begins a function is the function's if it does not end there
		for _, word := range luaWord.FindAllString(luaText.ReplaceAllString(line, ""), -1) {
			switch {
			case word == "end" || word == "until":
				open = open[:len(open)-1]
			case word == "function":
				open = append(open, fmt.Sprintf("%d: %s", i+1, strings.TrimSpace(line)))
			case word == "do" && loop:
				loop = false
			default:
				loop = word == "for" || word == "while"
				open = append(open, innermost())
			}
		}
		if in := innermost(); len(in) > 0 && strings.HasPrefix(in, fmt.Sprint(i+1, ":")) {
			of = in
		}
		all[of]++
	}
	return all
}

// includesIn returns how deep a file includes others.
func includesIn(t *testing.T, file string) (depth int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range regexp.MustCompile(`(?m)^ *-- include (\w+)$`).FindAllStringSubmatch(string(text), -1) {
		depth = max(depth, 1+includesIn(t, filepath.Join("lua", part[1]+".lua")))
	}
	return depth
}
