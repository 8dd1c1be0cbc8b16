package redisserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Failover is a master and a replica under the watch of Sentinels.
type Failover struct {
	Master, Replica *Server // as they were at first
	Sentinels       []*Server
}

// MasterName is what the Sentinels of a [Failover] call their master.
const MasterName = "master"

// StartFailover runs a master, a replica and so many Sentinels, and returns when
// these know all. While most of them are there, they promote the replica 1 to 4 s
// after the master has gone silent; one Sentinel is the fastest. A master that
// comes back is made a replica about 10 s later.
func StartFailover(tb testing.TB, sentinels int) *Failover {
	tb.Helper()
	f := &Failover{Master: Start(tb)}
	f.Replica = StartReplica(tb, f.Master)
	for range sentinels {
		f.Sentinels = append(f.Sentinels, startSentinel(tb, f.Master, sentinels/2+1))
	}
	complete := fmt.Sprintf("name=%s,status=ok,address=%s,slaves=1,sentinels=%d",
		MasterName, f.Master.Addr(), sentinels)
	for _, s := range f.Sentinels {
		var info string
		if !poll(func() bool {
			info = s.info("INFO", "sentinel") + s.info("SENTINEL", "REPLICAS", MasterName)
			return field(info, "master0") == complete && strings.Contains(info, "master-link-status ok")
		}) {
			tb.Fatalf("redisserver: the Sentinel at %s does not know all:\n%s", s.Addr(), info)
		}
	}
	return f
}

// SentinelAddrs are the addresses of the Sentinels, which clients ask for that
// of the master.
func (f *Failover) SentinelAddrs() []string {
	addrs := make([]string, len(f.Sentinels))
	for i, s := range f.Sentinels {
		addrs[i] = s.Addr()
	}
	return addrs
}

// startSentinel runs a Sentinel that needs the agreement of quorum.
func startSentinel(tb testing.TB, master *Server, quorum int) *Server {
	tb.Helper()
	s := prepare(tb, []string{"--sentinel"})
	s.config = filepath.Join(s.dir, "sentinel.conf") // where it keeps what it learns
	if err := os.WriteFile(s.config, nil, 0o600); err != nil {
		tb.Fatalf("redisserver: %v", err)
	}
	s.start()
	// A Sentinel that is suspended for 2 s, by a busy machine or by SIGSTOP, does nothing for 30 s (TILT). By then
	// the replica has been without its master for too long and is never promoted. Before 7.0 this cannot be configured.
	if reply, err := s.do(doTimeout, []string{"SENTINEL", "DEBUG", "TILT-TRIGGER", "600000"}); err != nil &&
		!errors.As(err, new(ReplyError)) {
		tb.Fatalf("redisserver: SENTINEL DEBUG to %s: %v, %v", s.Addr(), reply, err)
	}
	must(tb, s, "SENTINEL", "MONITOR", MasterName, "127.0.0.1", strconv.Itoa(master.port), strconv.Itoa(quorum))
	must(tb, s, "SENTINEL", "SET", MasterName, "down-after-milliseconds", "500")
	must(tb, s, "SENTINEL", "SET", MasterName, "failover-timeout", "3000")
	return s
}
