package redisserver

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Clock is time for scripts that ask the server for it. A client that passes
// every script through [Clock.Script], and answers [ErrNoScript] to EVALSHA, runs
// them at the clock's instant; everything else about them is the server's work.
//
// Keys expire in the time of the server, where a slow test takes longer than by the clock. So a script that sets
// a key's TTL with PEXPIRE or SET sets an hour more than it says, and PTTL tells it an hour less.
type Clock struct {
	mu      sync.Mutex
	now     time.Time
	scripts []script
}

// script is the text of a script that was passed to [Clock.Script], and what it returned.
type script struct{ text, timed string }

// NewClock is a clock at an instant whose microseconds begin with zeros, which
// is where scripts that build numbers from text go wrong.
func NewClock() *Clock { return &Clock{now: time.UnixMicro(1_763_700_000_000_007)} }

// Advance moves the clock, also backwards.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Now is the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// anHourMore changes redis.call and redis.pcall for the script that follows in the same line, so that errors name
// the script's own lines.
const anHourMore = `local redis = (function(server) ` +
	`local function more(call) return function(...) ` +
	`local command, key, ttl = ... ` +
	`if command == 'PEXPIRE' then return call(command, key, string.format('%.0f', ttl + 3600000)) end ` +
	`local option, px = select(4, ...) ` +
	`if command == 'SET' and option == 'PX' then ` +
	`return call(command, key, ttl, option, string.format('%.0f', px + 3600000)) end ` +
	`local reply = call(...) ` +
	`if command == 'PTTL' and type(reply) == 'number' and reply >= 0 then return reply - 3600000 end ` +
	`return reply end end ` + //nolint:dupword // Lua
	`return setmetatable({call = more(server.call), pcall = more(server.pcall)}, {__index = server}) end)(redis) `

// Script replaces the script's call of TIME by the clock's time, which it hands
// over as two keys more, gone once it is read.
func (c *Clock) Script(text string, keys []string) (string, []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	micros := c.now.UnixMicro()
	keys = append(slices.Clone(keys), strconv.FormatInt(micros/1e6, 10), strconv.FormatInt(micros%1e6, 10))
	for _, s := range c.scripts { // not a map, since hashing a script takes longer than comparing it with itself
		if s.text == text {
			return s.timed, keys
		}
	}
	timed := strings.Replace(text, "call('TIME')", "{table.remove(KEYS, #KEYS - 1), table.remove(KEYS)}", 1)
	timed = anHourMore + timed
	c.scripts = append(c.scripts, script{text, timed})
	return timed, keys
}

// Fixed returns the script with the clock's time in its text, for a cluster, where two keys more would be on other
// servers. It is another script at each instant.
func (c *Clock) Fixed(text string) string {
	micros := c.Now().UnixMicro()
	time := fmt.Sprintf("{'%d', '%d'}", micros/1e6, micros%1e6)
	return anHourMore + strings.Replace(text, "call('TIME')", time, 1)
}

// ErrNoScript is what a server says that has never seen a script.
const ErrNoScript = noScriptError("NOSCRIPT No matching script. Please use EVAL.")

type noScriptError string

func (e noScriptError) Error() string { return string(e) }

// RedisError marks it as the server's own for clients that ask.
func (noScriptError) RedisError() {}
