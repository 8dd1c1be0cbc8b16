package redisstore

import "strings"

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

// neededByStreams are the same if logs are streams. ZRANGE is for a log that is still a sorted set.
var neededByStreams = []string{
	"TIME",
	"XADD key NOMKSTREAM 1-1 i value",
	"XDEL key 1-1",
	"XTRIM key MAXLEN 0",
	"PEXPIRE key 1",
	"PTTL key",
	"UNLINK key",
	"XLEN key",
	"XRANGE key - +",
	"XREVRANGE key + -",
	"ZRANGE key 0 0",
	"INFO",
}

// commands returns the commands that the store's user must be allowed to run.
func commands(needed []string) []string {
	names := []string{"EVAL", "EVALSHA"}
	for _, line := range needed {
		if name, _, _ := strings.Cut(line, " "); name != "INFO" {
			names = append(names, name)
		}
	}
	return names
}

// grant is the advice to permit these commands.
func grant(commands ...string) string {
	return "permit it to the Redis user: ACL SETUSER <user> +" + strings.ToLower(strings.Join(commands, " +"))
}
