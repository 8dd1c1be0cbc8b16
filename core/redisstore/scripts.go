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

	jointSeveralScript  = newScript("joint_several")
	takeSeveralScript   = newScript("take_several")
	takeWeightedScript  = newScript("take_weighted")
	jointWeightedScript = newScript("joint_weighted")

	settleScript  = newScript("settle")
	entriesScript = newScript("entries")
	mergeScript   = newScript("merge")
	renewScript   = newScript("renew")
	undoScript    = newScript("undo")
)

func newScript(name string) redisclient.Script { return redisclient.NewScript(parts, name) }
