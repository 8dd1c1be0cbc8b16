package redisstore

// Commands are those that advice names.
var Commands = of.Commands

// Script is a script as it runs.
func Script(name string) string { return newScript(name).Text() }
