package redisclient

import (
	"context"
	"io/fs"
	"regexp"
	"slices"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua text and the name that Redis gives it. All scripts reply with integers.
type Script struct{ text, hash any } // strings, boxed once

// NewScript returns the script that a Lua file is, with the files that it includes.
func NewScript(files fs.ReadFileFS, name string) Script { return newScript(Assemble(files, name)) }

// isZero reports whether there is no script.
func (s Script) isZero() bool { return s.text == nil }

func newScript(text string) Script { return Script{text, sha1Hex(text)} }

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

// call is one run of a script.
type call struct {
	script Script
	args   []any // of the command: see newCall
	keys   int   // how many of args are keys
	reply  []int64
	err    error

	wantsTexts bool // the reply is texts
	texts      []string

	abandoned chan struct{} // in place of that of the Conn, where the node is known, or nil
}

// Indexes of a command's arguments.
const (
	commandAt = 0
	scriptAt  = 1
	keysAt    = 3
)

var evalSha, eval any = "evalsha", "eval"

// newCall returns a call with room for keys and arguments, from keysAt on.
func newCall(sc Script, keys, args int) call {
	q := call{script: sc, keys: keys, args: make([]any, keysAt+keys+args)}
	q.args[commandAt], q.args[scriptAt], q.args[keysAt-1] = evalSha, sc.hash, keys
	return q
}

// byText makes the call send the script's text, for a server that does not know its hash: one that has not run the
// script since it started, after SCRIPT FLUSH, or after a failover.
func (q *call) byText() {
	q.args = slices.Clone(q.args) // the client may still hold the old ones
	q.args[commandAt], q.args[scriptAt] = eval, q.script.text
}

func (q *call) command(ctx context.Context) *redis.IntSliceCmd {
	cmd := redis.NewIntSliceCmd(ctx, q.args...) // reads numbers without an allocation for each
	cmd.SetFirstKeyPos(keysAt)
	return cmd
}
