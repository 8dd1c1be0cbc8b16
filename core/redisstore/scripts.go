package redisstore

import (
	"embed"

	"github.com/sashlimit/sash/core/internal/redisclient"
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
	renewScript   = newScript("renew")
	undoScript    = newScript("undo")
)

func newScript(name string) redisclient.Script { return redisclient.NewScript(parts, name) }
