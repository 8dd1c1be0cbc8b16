package redisstore

import (
	"crypto/sha1" //nolint:gosec // the name that Redis gives a script, not a protection
	"embed"
	"encoding/hex"
	"io/fs"
	"regexp"
)

//go:embed lua
var parts embed.FS

// The scripts. docs/internals.md describes their keys, arguments and replies in the section "Redis formats".
var (
	takeScript    = newScript("take")
	counterScript = newScript("counter")
	jointScript   = newScript("joint")
	settleScript  = newScript("settle")
	entriesScript = newScript("entries")
	mergeScript   = newScript("merge")
	resetScript   = newScript("reset")
	undoScript    = newScript("undo")

	streamTakeScript    = newScript("stream_take")
	streamSettleScript  = newScript("stream_settle")
	streamEntriesScript = newScript("stream_entries")
	streamMergeScript   = newScript("stream_merge")
)

// script is a Lua text and the name that Redis gives it. All scripts reply with integers.
type script struct{ text, hash any } // strings, boxed once

func newScript(name string) script {
	text := assemble(parts, name)
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return script{text, hex.EncodeToString(sum[:])}
}

// include is a line of a Lua file that stands for another file.
var include = regexp.MustCompile(`(?m)^ *-- include (\w+)\n`)

// assemble returns the text of a Lua file with the files that it includes.
func assemble(files fs.ReadFileFS, name string) string {
	text, err := files.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) //nolint:forbidigo // the file is missing in this package
	}
	return include.ReplaceAllStringFunc(string(text), func(line string) string {
		return assemble(files, include.FindStringSubmatch(line)[1])
	})
}
