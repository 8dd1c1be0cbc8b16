package redisstore

import "github.com/sashlimit/sash/core/internal/redislog"

// Script is a script as it runs.
func Script(name string) string { return redislog.NewScript(files, name).Text() }
