package redisstore

import "github.com/sashlimit/sash/core/internal/redislog"

// Commands are those that advice names.
var Commands = of.Commands

// Script is a script as it runs.
func Script(name string) string { return redislog.NewScript(files, name).Text() }
