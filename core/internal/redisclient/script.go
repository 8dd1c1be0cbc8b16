package redisclient

import (
	"crypto/sha1" //nolint:gosec // it protects nothing
	"embed"
	"encoding/hex"
	"regexp"
	"sync"
)

// Script is a Lua text and how it is called. All scripts reply with integers, unless a call says otherwise.
type Script struct {
	text   any // a string, boxed once
	called func() (command, script any)
}

var evalSha, eval any = "evalsha", "eval"

// NewScript returns a script. It is for package variables: the text is hashed when it is needed first.
func NewScript(text string) *Script {
	return &Script{text, sync.OnceValues(func() (command, script any) { return called(text) })}
}

// called returns how a script is called: by its SHA-1, which is the name that Redis gives it. Where a program may use
// no algorithms but those that FIPS 140 approves, crypto/sha1 panics, and the text is sent each time.
func called(text string) (command, script any) {
	defer func() {
		if recover() != nil {
			command, script = eval, text
		}
	}()
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return evalSha, hex.EncodeToString(sum[:])
}

// Text returns the text as it runs.
func (s *Script) Text() string { return s.text.(string) } //nolint:forcetypeassert // see NewScript

var (
	include = regexp.MustCompile(`(?m)^-- include (\w+)\n`) // a line that stands for another file
	comment = regexp.MustCompile(`(?m)^ *(--.*)?\n`)        // a line that does nothing

	//go:embed lua
	shared embed.FS
)

// LoadScript returns the script that a file of Lua is, with the files that it includes, without comments but for its
// name.
func LoadScript(files embed.FS, name string) *Script {
	read := func(name string) string {
		text, err := files.ReadFile("lua/" + name + ".lua")
		if err != nil {
			text, err = shared.ReadFile("lua/" + name + ".lua")
		}
		if err != nil {
			panic(err) //nolint:forbidigo // the file is missing in the package
		}
		return string(text)
	}
	text := include.ReplaceAllStringFunc(read(name), func(line string) string {
		return read(include.FindStringSubmatch(line)[1])
	})
	return NewScript("-- " + name + "\n" + comment.ReplaceAllLiteralString(text, ""))
}
