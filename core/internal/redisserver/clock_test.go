package redisserver_test

import (
	"fmt"
	"testing"

	"github.com/sashlimit/sash/core/internal/redisserver"
)

// A key of a millisecond's TTL by the clock outlives a slow test, and a script is told what it has set.
func TestClockKeepsKeys(t *testing.T) {
	t.Parallel()
	s := redisserver.Start(t)
	run := func(script string) any {
		t.Helper()
		clock := redisserver.NewClock()
		args := []string{"EVAL", clock.Script(script), "1", "k"}
		for _, arg := range clock.Args(nil) {
			args = append(args, fmt.Sprint(arg))
		}
		got, err := s.Do(args...)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	const told = "1763700000"
	for _, call := range []string{"call", "pcall"} {
		want(t, s, "OK", "SET", "k", "v")
		got := run(`local call = redis.call local time = call('TIME') redis.` + call + `('PEXPIRE', KEYS[1], '1')
			return {time[1], redis.` + call + `('PTTL', KEYS[1])}`).([]any)
		if ttl := got[1].(int64); got[0] != told || ttl < 0 || ttl > 1 {
			t.Errorf("%s: the script is told %v, want %s and at most a millisecond", call, got, told)
		}
		ttl, err := s.Do("PTTL", "k")
		if err != nil || ttl.(int64) < 3_000_000 || ttl.(int64) > 3_600_001 {
			t.Errorf("%s: PTTL %v, %v; want about an hour", call, ttl, err)
		}
	}
	want(t, s, "OK", "SET", "k", "v")
	if got := run(`local call = redis.call return {call('TIME'), call('PTTL', KEYS[1])}`).([]any); got[1] != int64(-1) {
		t.Errorf("PTTL of a key without one is %v", got[1])
	}
}
