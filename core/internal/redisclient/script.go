package redisclient

import (
	"crypto/sha1" //nolint:gosec // the name that Redis gives a script, not a protection
	"encoding/hex"
	"io/fs"
	"regexp"
)

// Script is a Lua text and the name that Redis gives it. All scripts reply with integers.
type Script struct{ text, hash any } // strings, boxed once

// NewScript returns the script that a Lua file is, with the files that it includes.
func NewScript(files fs.ReadFileFS, name string) Script { return newScript(Assemble(files, name)) }

// isZero reports whether there is no script.
func (s Script) isZero() bool { return s.text == nil }

func newScript(text string) Script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return Script{text, hex.EncodeToString(sum[:])}
}

// Text returns the text as it runs.
func (s Script) Text() string { return s.text.(string) } //nolint:forcetypeassert // see newScript

// include is a line of a Lua file that stands for another file.
var include = regexp.MustCompile(`(?m)^ *-- include (\w+)\n`)

// comment is a line of a Lua file that does nothing.
var comment = regexp.MustCompile(`(?m)^ *(--.*)?\n`)

// Assemble returns the text of a Lua file with the files that it includes, without comments but for its name.
func Assemble(files fs.ReadFileFS, name string) string {
	return "-- " + name + "\n" + comment.ReplaceAllLiteralString(assemble(files, name), "")
}

func assemble(files fs.ReadFileFS, name string) string {
	text, err := files.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) //nolint:forbidigo // the file is missing in the package
	}
	return include.ReplaceAllStringFunc(string(text), func(line string) string {
		return assemble(files, include.FindStringSubmatch(line)[1])
	})
}
