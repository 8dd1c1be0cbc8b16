package redisserver

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// Clock is time for scripts that ask the server for it. A client that passes the text of every script through
// [Clock.Script], answers [ErrNoScript] to the SHA-1 of any other, and passes the arguments through [Clock.Args], runs
// them at the clock's instant; everything else about them is the server's work.
//
// Keys expire in the time of the server, where a slow test takes longer than by the clock. So a script that sets
// a key's TTL with PEXPIRE or SET sets an hour more than it says, and PTTL tells it an hour less,
// but never less than nothing, which would say that there is no TTL.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

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

// onClock changes redis.call and redis.pcall for the script that follows in the same line, so that errors name
// the script's own lines.
//
//nolint:dupword // it is Lua
var onClock = strings.Join(strings.Fields(`
	local redis = (function(server, time)
		local function changed(call)
			return function(...)
				local command, key, ttl, option, expires = ...
				if command == 'TIME' then return time end
				if command == 'PEXPIRE' then return call(command, key, string.format('%.0f', ttl + 3600000)) end
				if command == 'SET' and option then
					local hour = option == 'PX' and 3600000 or 3600
					return call(command, key, ttl, option, string.format('%.0f', expires + hour))
				end
				local reply = call(...)
				if command == 'PTTL' and type(reply) == 'number' and reply >= 0 then
					return math.max(reply - 3600000, 0)
				end
				return reply
			end
		end
		return setmetatable({call = changed(server.call), pcall = changed(server.pcall)}, {__index = server})
	end)(redis, {table.remove(ARGV, #ARGV - 1), table.remove(ARGV)})`), " ") + " "

// Script returns the script that gets the clock's time where it asks for the server's. It is the same for all clocks.
func (*Clock) Script(text string) string { return onClock + text }

// Args returns the arguments of a script with the clock's time behind them, which is gone when the script begins.
func (c *Clock) Args(args []any) []any {
	micros := c.Now().UnixMicro()
	return append(slices.Clone(args), micros/1e6, micros%1e6)
}

// ErrNoScript is what a server says that has never seen a script.
const ErrNoScript = noScriptError("NOSCRIPT No matching script. Please use EVAL.")

type noScriptError string

func (e noScriptError) Error() string { return string(e) }

// RedisError marks it as the server's own for clients that ask.
func (noScriptError) RedisError() {}
