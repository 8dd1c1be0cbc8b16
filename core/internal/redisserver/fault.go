package redisserver

import (
	"os"
	"path/filepath"
	"strings"
)

// Promote makes a replica a master. Its old master goes on as one, too.
func (s *Server) Promote() {
	s.tb.Helper()
	must(s.tb, s, "REPLICAOF", "NO", "ONE")
}

// Busy occupies the server with a script that does not end, and returns when it
// answers BUSY to everything but SCRIPT KILL, which ends the script.
func (s *Server) Busy() {
	s.tb.Helper()
	must(s.tb, s, "CONFIG", "SET", "lua-time-limit", "100") // ms until it answers at all
	conn, err := s.send(doTimeout, []string{"EVAL", "while true do end", "0"})
	if err != nil {
		s.tb.Fatalf("redisserver: EVAL to %s: %v", s.Addr(), err)
	}
	defer conn.Close() // the script runs on
	s.tb.Cleanup(func() { _, _ = s.do(doTimeout, []string{"SCRIPT", "KILL"}) })
	if !poll(func() bool { return strings.HasPrefix(s.info("PING"), "BUSY") }) {
		s.tb.Fatalf("redisserver: %s is not busy, but says %s", s.Addr(), s.info("PING"))
	}
}

// FailSaves makes the server fail to save its data, or succeed again, and returns
// when a try has ended so. A server with "--save", "3600", "1" answers MISCONF to
// writes for as long as its last try has failed.
func (s *Server) FailSaves(fail bool) {
	s.tb.Helper()
	file, want := filepath.Join(s.dir, "dump.rdb"), "ok"
	err := os.RemoveAll(file)
	if fail && err == nil {
		want = "err"
		err = os.Mkdir(file, 0o700) // in the way of the file, even for root
	}
	if err != nil {
		s.tb.Fatalf("redisserver: %v", err)
	}
	var info string
	saved := false
	if !poll(func() bool {
		info = s.info("INFO", "persistence")
		switch {
		case field(info, "rdb_bgsave_in_progress") != "0": // its child would write on when the server is killed
			return false
		case saved && field(info, "rdb_last_bgsave_status") == want:
			return true
		}
		info, saved = s.info("BGSAVE"), true
		return false
	}) {
		s.tb.Fatalf("redisserver: the last save of %s did not end with %s:\n%s", s.Addr(), want, info)
	}
}

// fill makes as many keys of as many bytes, in a database of its own.
const fill = `redis.call('SELECT', 15)
local value = string.rep('x', ARGV[2])
for i = 1, ARGV[1] do redis.call('SET', 'redistest:' .. i, value) end`

// slowLoad is data that takes long to load, and with which settings.
type slowLoad struct {
	keys, bytes string
	settings    []string
}

// slowLoading chooses settings for the server's version. From Redis 7.0 on it waits 10 ms after each key, and answers
// clients once per kB. Redis 6 answers them once per 2 MB: a key has so many, and the server waits half a second
// after each.
func (s *Server) slowLoading() slowLoad {
	const interval = "loading-process-events-interval-bytes"
	if known := must(s.tb, s, "CONFIG", "GET", interval).([]any); len(known) > 0 {
		return slowLoad{"6000", "1024", []string{"--key-load-delay", "10000", "--" + interval, "1024"}}
	}
	return slowLoad{"20", "2097152", []string{"--key-load-delay", "500000"}}
}

// RestartLoading saves the data and is a [Server.Restart] that returns while the
// server loads it and answers LOADING. This takes a minute (10 s with Redis 6), because of data that
// it adds to database 15, or until FinishLoading.
func (s *Server) RestartLoading() {
	s.tb.Helper()
	load := s.slowLoading()
	for _, command := range [][]string{
		{"CONFIG", "SET", "rdbcompression", "no"},
		{"EVAL", fill, "0", load.keys, load.bytes},
		{"SAVE"},
	} {
		if _, err := s.do(readyTimeout, command); err != nil {
			s.tb.Fatalf("redisserver: %.40q to %s: %v", command, s.Addr(), err)
		}
	}
	s.Kill()
	loads := func() bool { return s.isUp() && isLoading(s) }
	if err := s.launch(loads, load.settings...); err != nil {
		s.tb.Fatalf("redisserver: restart: %v", err)
	}
}

// FinishLoading returns when the server has loaded its data and answers. Redis 6 is restarted for that.
func (s *Server) FinishLoading() {
	s.tb.Helper()
	if _, err := s.do(doTimeout, []string{"CONFIG", "SET", "key-load-delay", "0"}); err != nil && isLoading(s) {
		s.Restart() // Redis 6 takes no settings while it loads
	}
	if !poll(s.answers) {
		s.tb.Fatalf("redisserver: %s still loads:\n%s", s.Addr(), s.info("INFO", "persistence"))
	}
}

func isLoading(s *Server) bool { return field(s.info("INFO", "persistence"), "loading") == "1" }
