package redisstore

import (
	"embed"
	"regexp"

	"github.com/sashlimit/sash/core/internal/next/redisclient"
)

//go:embed lua
var files embed.FS

// The scripts. The head of each file tells its keys, its arguments and its reply.
var (
	one     = newScript("one")
	list    = newScript("list")
	settle  = newScript("settle")
	renew   = newScript("renew")
	reset   = newScript("reset")
	entries = newScript("entries")

	settleCounter = newScript("settle_counter")
)

var (
	include = regexp.MustCompile(`(?m)^-- include (\w+)\n`) // a line that stands for another file
	comment = regexp.MustCompile(`(?m)^ *(--.*)?\n`)        // a line that does nothing
)

// newScript returns the script that a file is, behind the files that it includes, without comments but for its name.
func newScript(name string) *redisclient.Script {
	text := include.ReplaceAllStringFunc(read(name), func(line string) string {
		return read(include.FindStringSubmatch(line)[1])
	})
	return redisclient.NewScript("-- " + name + "\n" + comment.ReplaceAllLiteralString(text, ""))
}

func read(name string) string {
	text, err := files.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) //nolint:forbidigo // the file is missing in the package
	}
	return string(text)
}
