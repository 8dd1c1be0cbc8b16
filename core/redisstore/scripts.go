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
	takeVariedScript    = newScript("take_varied")
	takeWeightedScript  = newScript("take_weighted")
	jointWeightedScript = newScript("joint_weighted")

	renewScript = newScript("renew")
	undoScript  = newScript("undo")
	bookScript  = newScript("book")
)

func newScript(name string) redisclient.Script { return redisclient.NewScript(parts, name) }

// needed are the commands that the scripts call, in a form that changes nothing if the key does not exist. TIME comes
// before writes, since Redis 6 may refuse writes after it, and ZADD before other writes, since after a write no command
// is refused for lack of memory. INCRBY gets a word, which it refuses to add. INFO is for Check alone.
var needed = []string{
	"TIME",
	"ZADD key XX 0 member",
	"ZREM key member",
	"ZREMRANGEBYRANK key 0 0",
	"ZREMRANGEBYSCORE key 0 0",
	"PEXPIRE key 1",
	"PTTL key",
	"UNLINK key",
	"ZCARD key",
	"ZCOUNT key 0 0",
	"ZRANGE key 0 0",
	"ZRANGEBYSCORE key 0 0",
	"ZSCORE key member",
	"GET key",
	"SET key value XX",
	"INCRBY key none",
	"INFO",
}
