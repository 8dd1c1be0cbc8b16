package redistest_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/coretest/redistest"
)

func TestServerAnswers(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	want(t, s, "PONG", "PING")
	want(t, s, []any{"maxmemory-policy", "allkeys-lru"}, "CONFIG", "GET", "maxmemory-policy")
	want(t, s, []any{"save", ""}, "CONFIG", "GET", "save")
	if got := s.URL(); got != "redis://"+s.Addr()+"/0" {
		t.Errorf("URL() = %q", got)
	}
	info, err := s.Do("INFO", "server")
	if err != nil {
		t.Fatal(err)
	}
	if line := fmt.Sprintf("process_id:%d\r\n", s.PID()); !strings.Contains(fmt.Sprint(info), line) {
		t.Errorf("PID() = %d, not that of the server", s.PID())
	}
}

func TestServersAreApart(t *testing.T) {
	t.Parallel()
	a, b := redistest.Start(t), redistest.Start(t)
	want(t, a, "OK", "SET", "k", "v")
	want(t, b, nil, "GET", "k")
}

func TestDoReadsEveryKindOfReply(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	want(t, s, "OK", "SET", "k", "a\r\nb\x00")
	want(t, s, "a\r\nb\x00", "GET", "k")
	want(t, s, "", "ECHO", "")
	want(t, s, nil, "GET", "none")
	want(t, s, int64(-7), "DECRBY", "n", "7")
	want(t, s, []any{}, "KEYS", "none")
	want(t, s, nil, "BLPOP", "none", "0.01") // a nil array
	want(t, s,
		[]any{int64(1), "x", []any{"y", []any{}}, redistest.ReplyError("BAD luck"), "fine"},
		"EVAL", `return {1, "x", {"y", {}}, {err="BAD luck"}, {ok="fine"}}`, "0")

	_, err := s.Do("INCR", "k")
	var refused redistest.ReplyError
	if !errors.As(err, &refused) || !strings.HasPrefix(refused.Error(), "ERR value is not an integer") {
		t.Errorf("INCR of a text: %v", err)
	}
}

func TestDoRefusesWhatIsNoReply(t *testing.T) {
	t.Parallel()
	// Do asks only its own server, which therefore gives way to a liar.
	s := redistest.Start(t)
	s.Kill()
	l, err := net.Listen("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	replies := []string{
		"", "+", "\r\n", "+OK\n", "hello\r\n", "$x\r\n", "$5\r\nab", ":x\r\n", "*x\r\n", "*2\r\n+OK\r\n",
	}
	go func() {
		for _, reply := range replies {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(conn).ReadString('G') // up to the G of PING
			_, _ = io.WriteString(conn, reply)
			_ = conn.Close()
		}
	}()
	for _, reply := range replies {
		if got, err := s.Do("PING"); err == nil {
			t.Errorf("reply %q: got %#v", reply, got)
		}
	}
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--maxmemory", "5mb")
	addr, pid := s.Addr(), s.PID()
	want(t, s, "OK", "SET", "k", "v")

	s.Kill()
	s.Kill() // again, which changes nothing
	if _, err := s.Do("PING"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("PING after Kill: %v", err)
	}

	s.Restart()
	if s.Addr() != addr || s.PID() == pid {
		t.Errorf("restarted at %s as %d, was at %s as %d", s.Addr(), s.PID(), addr, pid)
	}
	want(t, s, nil, "GET", "k")
	want(t, s, []any{"maxmemory", "5242880"}, "CONFIG", "GET", "maxmemory")

	pid = s.PID()
	s.Restart() // without Kill
	if s.PID() == pid {
		t.Error("the server still runs")
	}
}

func TestRestartKeepsWhatArgumentsKeep(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	want(t, s, "OK", "SET", "k", "v")
	s.Restart()
	want(t, s, "v", "GET", "k")
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Pause()
	c := dial(t, s.Addr()) // the kernel accepts it
	c.send(t)
	c.silent(t)
	s.Resume()
	if err := c.conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if line, err := c.replies.ReadString('\n'); err != nil || line != ":1\r\n" {
		t.Errorf("the request made during the pause: %q, %v, want 1", line, err)
	}
}

func TestPausedServerEndsWithItsTest(t *testing.T) {
	t.Parallel()
	var addr string
	t.Run("inner", func(t *testing.T) {
		s := redistest.Start(t)
		addr = s.Addr()
		s.Pause()
	})
	if !refuses(addr) {
		t.Errorf("%s still accepts", addr)
	}
}

func TestServerWithPassword(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--requirepass", "secret")
	refused(t, s, "NOAUTH", "GET", "k")
	refused(t, s, "WRONGPASS", "AUTH", "default", "guess")
	s.Password = "guess"
	refused(t, s, "NOAUTH", "GET", "k")
	s.Password = "secret"
	want(t, s, "OK", "SET", "k", "v")
	s.Restart()
	want(t, s, nil, "GET", "k")
}

func TestPasswordThatComesAndGoes(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := dial(t, s.Addr())
	c.incr(t, 1)
	want(t, s, "OK", "CONFIG", "SET", "requirepass", "secret")
	refused(t, s, "NOAUTH", "GET", "n")
	c.incr(t, 2) // is let in already
	s.Password = "secret"
	want(t, s, "2", "GET", "n")
	s.Restart() // without the password
	want(t, s, nil, "GET", "n")
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args            []string
		before, command string
		want            string
	}{
		{
			args:    []string{"--rename-command", "EVALSHA", ""},
			command: "EVALSHA 0 0",
			want:    "ERR unknown command",
		},
		{
			before:  "ACL SETUSER default -@scripting",
			command: "EVAL return 0",
			want:    "NOPERM",
		},
		{
			args:    []string{"--user", "default", "on", "nopass", "+@all", "~other:*"},
			command: "GET k",
			want:    "NOPERM",
		},
		{
			before:  "CONFIG SET min-replicas-to-write 3",
			command: "SET k v",
			want:    "NOREPLICAS",
		},
		{
			args:    []string{"--maxmemory", "3mb", "--maxmemory-policy", "noeviction"},
			before:  "SETRANGE big 3000000 x",
			command: "SET k v",
			want:    "OOM",
		},
		{
			before:  "SET k v",
			command: "ZCARD k",
			want:    "WRONGTYPE",
		},
	} {
		t.Run(test.want+" to "+test.command, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, test.args...)
			if test.before != "" {
				if _, err := s.Do(strings.Fields(test.before)...); err != nil {
					t.Fatalf("%s: %v", test.before, err)
				}
			}
			refused(t, s, test.want, strings.Fields(test.command)...)
		})
	}
}

func TestTooManyClients(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := dial(t, s.Addr())
	c.incr(t, 1)
	want(t, s, "OK", "CONFIG", "SET", "maxclients", "1")
	eventually(t, "the connection of CONFIG is closed and one more refused", func() bool {
		_, err := s.Do("PING")
		return err != nil && err.Error() == "ERR max number of clients reached"
	})
	c.incr(t, 2)
	_ = c.conn.Close()
	eventually(t, "there is room again", func() bool {
		got, err := s.Do("GET", "n")
		return err == nil && got == "2"
	})
}

func TestBusy(t *testing.T) {
	t.Parallel()
	var addr string
	t.Run("inner", func(t *testing.T) {
		s := redistest.Start(t)
		addr = s.Addr()
		s.Busy()
		refused(t, s, "BUSY", "SET", "k", "v")
		want(t, s, "OK", "SCRIPT", "KILL")
		eventually(t, "the script ends", func() bool {
			_, err := s.Do("SET", "k", "v")
			return err == nil
		})
		s.Busy()
	})
	if !refuses(addr) {
		t.Errorf("%s still accepts", addr)
	}
}

func TestFailSaves(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--save", "3600", "1")
	want(t, s, "OK", "SET", "k", "v")
	want(t, s, "OK", "SAVE") // a file is no hindrance
	s.FailSaves(true)
	refused(t, s, "MISCONF", "SET", "k", "w")
	want(t, s, "v", "GET", "k")
	s.FailSaves(false)
	want(t, s, "OK", "SET", "k", "w")
}

func TestRestartLoading(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	want(t, s, "OK", "SET", "k", "v")
	pid := s.PID()
	s.RestartLoading()
	if s.PID() == pid {
		t.Error("the server still runs")
	}
	refused(t, s, "LOADING", "GET", "k")
	s.FinishLoading()
	want(t, s, "v", "GET", "k")
	want(t, s, int64(1), "DBSIZE")
}

func TestLoadingServerEndsWithItsTest(t *testing.T) {
	t.Parallel()
	var addr string
	t.Run("inner", func(t *testing.T) {
		s := redistest.Start(t)
		addr = s.Addr()
		s.RestartLoading()
	})
	if !refuses(addr) {
		t.Errorf("%s still accepts", addr)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s := redistest.StartTLS(t, "--requirepass", "secret")
	s.Password = "secret"
	want(t, s, "OK", "SET", "k", "v")
	if got := s.URL(); got != "rediss://"+s.Addr()+"/0" {
		t.Errorf("URL() = %q", got)
	}
	conn, err := tls.Dial("tcp", s.Addr(), s.TLSConfig())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()

	other := redistest.StartTLS(t)
	for desc, config := range map[string]*tls.Config{"of another": other.TLSConfig(), "of the system": {}} {
		var unknown x509.UnknownAuthorityError
		if _, err := tls.Dial("tcp", s.Addr(), config); !errors.As(err, &unknown) {
			t.Errorf("with the authorities %s: %v", desc, err)
		}
	}
	plain := dial(t, s.Addr())
	plain.send(t)
	if line, err := plain.replies.ReadString('\n'); err == nil {
		t.Errorf("without TLS: %q", line)
	}
	if config := redistest.Start(t).TLSConfig(); config != nil {
		t.Errorf("a server without TLS has %v", config)
	}
}

func TestStartTellsWhyRedisEnded(t *testing.T) {
	t.Parallel()
	got := capture(t, func(tb testing.TB) { redistest.Start(tb, "--no-such-option", "1") })
	if !got.failed || !strings.Contains(got.said, "'no-such-option") {
		t.Errorf("failed: %v, said: %s", got.failed, got.said)
	}
}

func TestStartTriesOtherPorts(t *testing.T) {
	t.Parallel()
	_, port, err := net.SplitHostPort(redistest.Start(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	// The argument undoes the choice of a free port, so each attempt must fail.
	got := capture(t, func(tb testing.TB) { redistest.Start(tb, "--port", port) })
	if !got.failed || !strings.Contains(got.said, "address already in use") {
		t.Errorf("failed: %v, said: %s", got.failed, got.said)
	}
}

func TestMissingRedis(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("SASH_REDIS_SERVER", "")

	t.Setenv("SASH_REQUIRE_REDIS", "")
	got := capture(t, func(tb testing.TB) { redistest.Start(tb) })
	if got.failed || !strings.Contains(got.said, "apk add redis") {
		t.Errorf("not required: failed: %v, said: %s", got.failed, got.said)
	}
	t.Setenv("SASH_REQUIRE_REDIS", "1")
	got = capture(t, func(tb testing.TB) { redistest.Start(tb) })
	if !got.failed || !strings.Contains(got.said, "make test") {
		t.Errorf("required: failed: %v, said: %s", got.failed, got.said)
	}
}

// A killed test process runs no Cleanup, and its servers must end all the same.
func TestServerDiesWithTestProcess(t *testing.T) {
	if os.Getenv("REDISTEST_CHILD") == "1" {
		fmt.Println("server " + redistest.Start(t).Addr())
		select {}
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can tie a process to its parent")
	}
	t.Parallel()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServerDiesWithTestProcess$")
	child.Env = append(os.Environ(), "REDISTEST_CHILD=1", "SASH_REQUIRE_REDIS=1", "TMPDIR="+t.TempDir())
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var addr string
	for lines := bufio.NewScanner(output); addr == "" && lines.Scan(); {
		addr, _ = strings.CutPrefix(lines.Text(), "server ")
	}
	if refuses(addr) {
		t.Errorf("%q does not accept", addr)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed, and says so
	eventually(t, "the server ends", func() bool { return refuses(addr) })
}

func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	nodes, addrs := c.Nodes(), c.Addrs()
	if len(nodes) != 3 || len(addrs) != 3 {
		t.Fatalf("%d nodes, %d addresses", len(nodes), len(addrs))
	}
	for i, node := range nodes {
		if node.Addr() != addrs[i] {
			t.Errorf("node %d is at %s, said to be at %s", i, node.Addr(), addrs[i])
		}
		info, err := node.Do("CLUSTER", "INFO")
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"cluster_state:ok", "cluster_slots_assigned:16384", "cluster_known_nodes:3"} {
			if !strings.Contains(fmt.Sprint(info), line+"\r\n") {
				t.Errorf("node %d does not say %s:\n%s", i, line, info)
			}
		}
	}
	// The slots of these are known: CRC16 of "123456789" is 0x31C3.
	for key, slot := range map[string]int{"123456789": 0x31C3, "foo": 12182, "bar": 5061, "hello": 866} {
		owner := slot * 3 / 16384
		for i, node := range nodes {
			if i == owner {
				want(t, node, "OK", "SET", key, "v")
				continue
			}
			moved := fmt.Sprintf("MOVED %d %s", slot, addrs[owner])
			if _, err := node.Do("SET", key, "v"); err == nil || err.Error() != moved {
				t.Errorf("SET %s at node %d: %v, want %s", key, i, err, moved)
			}
		}
	}

	nodes[1].Kill()
	eventually(t, "the others notice", func() bool {
		info, err := nodes[0].Do("CLUSTER", "INFO")
		return err == nil && strings.Contains(fmt.Sprint(info), "cluster_state:fail")
	})
	refused(t, nodes[0], "CLUSTERDOWN", "SET", "hello", "v")
	nodes[1].Restart()
	eventually(t, "the node is back in its cluster", func() bool {
		info, err := nodes[0].Do("CLUSTER", "INFO")
		return err == nil && strings.Contains(fmt.Sprint(info), "cluster_state:ok")
	})
}

func TestClusterOfOne(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1)
	node := c.Nodes()[0]
	want(t, node, "OK", "SET", "k", "v")
	refused(t, node, "CROSSSLOT", "MGET", "k", "l")
}

func TestClusterMovesSlots(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	const key, slot = "{foo}1", 12182 // that of "foo", as above
	to, from, third := c.Nodes()[0], c.Nodes()[2], c.Nodes()[1]
	if owner := c.Owner(key); owner != from {
		t.Fatalf("the owner is %s", owner.Addr())
	}
	const many = 250 // more than are moved at once
	want(t, from, int64(many), "EVAL", `for i = 1, ARGV[1] do redis.call('SET', '{foo}' .. i, i) end
		return redis.call('CLUSTER', 'COUNTKEYSINSLOT', 12182)`, "1", key, strconv.Itoa(many))

	ask, moved := fmt.Sprintf("ASK %d %s", slot, to.Addr()), fmt.Sprintf("MOVED %d ", slot)
	m := c.BeginMove(key, to)
	want(t, from, "1", "GET", key)
	refused(t, from, ask, "GET", "{foo}none")
	some := "TRYAGAIN"
	if info, err := from.Do("INFO", "server"); err == nil && strings.Contains(info.(string), "redis_version:6.") {
		some = ask // also where it has some of the keys
	}
	refused(t, from, some, "MGET", key, "{foo}none")
	refused(t, to, moved+from.Addr(), "GET", key)
	m.MoveKeys()
	refused(t, from, ask, "GET", key)
	refused(t, third, moved+from.Addr(), "GET", key)
	m.End()
	want(t, to, "1", "GET", key)
	want(t, to, int64(many), "CLUSTER", "COUNTKEYSINSLOT", strconv.Itoa(slot))
	for _, node := range []*redistest.Server{from, third} {
		refused(t, node, moved+to.Addr(), "GET", key)
	}
	to.Kill()
	if owner := c.Owner(key); owner != to {
		t.Errorf("after the move the owner is %s", owner.Addr())
	}
}

func TestReplica(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	want(t, master, "OK", "SET", "before", "1")
	replica := redistest.StartReplica(t, master)
	want(t, replica, "1", "GET", "before")
	if _, err := replica.Do("SET", "k", "v"); err == nil || !strings.HasPrefix(err.Error(), "READONLY") {
		t.Errorf("SET at the replica: %v", err)
	}
	want(t, master, "OK", "SET", "after", "2")
	eventually(t, "the replica follows", func() bool {
		got, err := replica.Do("GET", "after")
		return err == nil && got == "2"
	})
}

func TestPromote(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	refused(t, replica, "READONLY", "SET", "k", "v")
	replica.Promote()
	want(t, replica, "OK", "SET", "k", "v")
	want(t, master, nil, "GET", "k")
}

func TestFailover(t *testing.T) {
	t.Parallel()
	for _, sentinels := range []int{1, 3} {
		t.Run(strconv.Itoa(sentinels), func(t *testing.T) {
			t.Parallel()
			f := redistest.StartFailover(t, sentinels)
			if len(f.SentinelAddrs()) != sentinels || f.SentinelAddrs()[0] != f.Sentinels[0].Addr() {
				t.Errorf("SentinelAddrs() = %q", f.SentinelAddrs())
			}
			masterIs := func(s *redistest.Server) bool {
				_, port, err := net.SplitHostPort(s.Addr())
				if err != nil {
					t.Fatal(err)
				}
				for _, sentinel := range f.Sentinels {
					got, err := sentinel.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", redistest.MasterName)
					if err != nil || !reflect.DeepEqual(got, []any{"127.0.0.1", port}) {
						return false
					}
				}
				return true
			}
			if !masterIs(f.Master) {
				t.Error("the Sentinels do not know the master")
			}
			refused(t, f.Replica, "READONLY", "SET", "k", "v")
			f.Master.Kill()
			eventually(t, "the replica is the master", func() bool { return masterIs(f.Replica) })
			want(t, f.Replica, "OK", "SET", "k", "v")
		})
	}
}

func TestProxyPassesOn(t *testing.T) {
	t.Parallel()
	a, b := redistest.Start(t), redistest.Start(t)
	p := redistest.StartProxy(t, a.Addr())
	before := dial(t, p.Addr())
	before.incr(t, 1)
	p.SetTarget(b.Addr())
	before.incr(t, 2)
	dial(t, p.Addr()).incr(t, 1)
	want(t, a, "2", "GET", "n")
	want(t, b, "1", "GET", "n")
}

func TestProxyDelays(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.StartProxy(t, s.Addr())
	c := dial(t, p.Addr())
	const delay = 60 * time.Millisecond
	p.SetDelay(delay)
	began := time.Now()
	c.incr(t, 1)
	if took := time.Since(began); took < delay {
		t.Errorf("the reply took %v, want %v", took, delay)
	}
	// Another client sees the request take effect while its reply is held back.
	p.SetDelay(time.Hour)
	c.send(t)
	eventually(t, "the request takes effect", func() bool {
		n, err := s.Do("GET", "n")
		return err == nil && n == "2"
	})
	p.SetDelay(0)
	dial(t, p.Addr()).incr(t, 3)
}

func TestProxyDropsReplies(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.StartProxy(t, s.Addr())
	c := dial(t, p.Addr())
	p.DropReplies(true)
	c.send(t)
	eventually(t, "the reply is lost", func() bool { return p.Dropped() == 1 })
	want(t, s, "1", "GET", "n") // the request took effect
	p.DropReplies(false)
	c.incr(t, 2) // the next reply that arrives is that of the next request
	dial(t, p.Addr()).incr(t, 3)
	if n := p.Dropped(); n != 1 {
		t.Errorf("%d replies were lost", n)
	}
}

func TestProxyCuts(t *testing.T) {
	t.Parallel()
	p := redistest.StartProxy(t, redistest.Start(t).Addr())
	a, b := dial(t, p.Addr()), dial(t, p.Addr())
	a.incr(t, 1)
	b.incr(t, 2)
	p.Cut()
	for _, c := range []*client{a, b} {
		if _, err := c.replies.ReadString('\n'); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("after Cut: %v", err)
		}
	}
	dial(t, p.Addr()).incr(t, 3)
}

func TestProxyCutsReply(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.StartProxy(t, s.Addr())
	a, b := dial(t, p.Addr()), dial(t, p.Addr())
	a.incr(t, 1)
	b.incr(t, 2)
	p.CutReply()
	a.send(t)
	if line, err := a.replies.ReadString('\n'); line != ":3" || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %q, %v", line, err)
	}
	b.incr(t, 4)
	want(t, s, "4", "GET", "n") // the request took effect
}

func TestProxyTrickles(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.StartProxy(t, s.Addr())
	c := dial(t, p.Addr())
	const pause = 20 * time.Millisecond
	p.Trickle(pause)
	began := time.Now()
	c.incr(t, 1)
	if took, least := time.Since(began), pause*time.Duration(len(":1\r\n")); took < least {
		t.Errorf("the reply took %v, want %v", took, least)
	}
	p.Trickle(time.Hour)
	c.send(t)
	eventually(t, "the request takes effect", func() bool {
		n, err := s.Do("GET", "n")
		return err == nil && n == "2"
	})
	p.Trickle(0)
	dial(t, p.Addr()).incr(t, 3)
}

func TestProxyIsABlackHole(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.StartProxy(t, s.Addr())
	asks, idles, waits := dial(t, p.Addr()), dial(t, p.Addr()), dial(t, p.Addr())
	asks.incr(t, 1)
	idles.incr(t, 2)
	waits.write(t, "BLPOP list 0\r\n")
	eventually(t, "a client waits", func() bool {
		info, err := s.Do("INFO", "clients")
		return err == nil && strings.Contains(fmt.Sprint(info), "blocked_clients:1\r\n")
	})

	p.BlackHole(true)
	asks.send(t)
	eventually(t, "the request is lost", func() bool { return p.Dropped() == 1 })
	want(t, s, int64(1), "LPUSH", "list", "x")
	eventually(t, "the reply is lost", func() bool { return p.Dropped() == 2 })
	comes := dial(t, p.Addr())
	comes.send(t)
	eventually(t, "another request is lost", func() bool { return p.Dropped() == 3 })

	p.BlackHole(false)
	idles.incr(t, 3)
	dial(t, p.Addr()).incr(t, 4)
	for _, dead := range []*client{asks, waits, comes} {
		dead.send(t)
		dead.silent(t)
	}
	want(t, s, "4", "GET", "n")
}

func TestBlackHoleHidesThatTheServerEnds(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.StartProxy(t, s.Addr())
	c := dial(t, p.Addr())
	c.incr(t, 1)
	p.BlackHole(true)
	s.Kill()
	c.silent(t)
	s.Restart()
	p.BlackHole(false)
	dial(t, p.Addr()).incr(t, 1)
	c.send(t)
	c.silent(t)
}

func TestFake(t *testing.T) {
	t.Parallel()
	var commands [][]string
	addr := redistest.StartFake(t, func(command []string) string {
		commands = append(commands, command)
		switch command[0] {
		case "GET":
			return "%1\r\n+a map\r\n:1\r\n"
		case "BULK":
			return "$104857600\r\n"
		}
		return ""
	})
	c := dial(t, addr)
	for _, test := range []struct{ send, want string }{
		{"*2\r\n$5\r\nhello\r\n$1\r\n3\r\n", "-ERR unknown command 'HELLO'\r\n"},
		{"*2\r\n$3\r\nget\r\n$4\r\n\r\nKk\r\n", "%1\r\n+a map\r\n:1\r\n"},
		{"*1\r\n$4\r\nBULK\r\n", "$104857600\r\n"},
	} {
		c.write(t, test.send)
		got := make([]byte, len(test.want))
		if _, err := io.ReadFull(c.replies, got); err != nil || string(got) != test.want {
			t.Errorf("%q: %q, %v, want %q", test.send, got, err, test.want)
		}
	}
	c.silent(t)
	if want := [][]string{{"HELLO", "3"}, {"GET", "\r\nKk"}, {"BULK"}}; !reflect.DeepEqual(commands, want) {
		t.Errorf("got the commands %q, want %q", commands, want)
	}

	for _, text := range []string{"GET k\r\n", "*0\r\n", "$3\r\nGET\r\n", "*-1\r\n"} {
		c := dial(t, addr)
		c.write(t, text)
		if line, err := c.replies.ReadString('\n'); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: %q, %v", text, line, err)
		}
	}
}

func TestProxyWithoutServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := redistest.StartProxy(t, s.Addr())
	c := dial(t, p.Addr())
	c.incr(t, 1)
	s.Kill()
	if line, err := c.replies.ReadString('\n'); err == nil {
		t.Errorf("got %q from a dead server", line)
	}
	if line, err := dial(t, p.Addr()).replies.ReadString('\n'); err == nil {
		t.Errorf("got %q from a dead server", line)
	}
	s.Restart()
	dial(t, p.Addr()).incr(t, 1)
}

// client keeps one connection open, which Do does not.
type client struct {
	conn    net.Conn
	replies *bufio.Reader
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &client{conn, bufio.NewReader(conn)}
}

func (c *client) write(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(c.conn, text); err != nil {
		t.Fatal(err)
	}
}

func (c *client) send(t *testing.T) {
	t.Helper()
	c.write(t, "INCR n\r\n")
}

// silent sees that the connection is open and nothing comes.
func (c *client) silent(t *testing.T) {
	t.Helper()
	if err := c.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if got, err := c.replies.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %q, %v", got, err)
	}
}

func (c *client) incr(t *testing.T, n int) {
	t.Helper()
	c.send(t)
	line, err := c.replies.ReadString('\n')
	if err != nil || line != ":"+strconv.Itoa(n)+"\r\n" {
		t.Fatalf("INCR: %q, %v, want %d", line, err, n)
	}
}

func want(t *testing.T, s *redistest.Server, reply any, args ...string) {
	t.Helper()
	got, err := s.Do(args...)
	if err != nil || !reflect.DeepEqual(got, reply) {
		t.Errorf("%q: %#v, %v, want %#v", args, got, err, reply)
	}
}

func refused(t *testing.T, s *redistest.Server, prefix string, args ...string) {
	t.Helper()
	got, err := s.Do(args...)
	var refusal redistest.ReplyError
	if !errors.As(err, &refusal) || !strings.HasPrefix(refusal.Error(), prefix) {
		t.Errorf("%q: %#v, %v, want %s", args, got, err, prefix)
	}
}

func refuses(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return true
	}
	_ = conn.Close()
	return false
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); !done(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// outcome is how a test would have ended.
type outcome struct {
	testing.TB
	failed bool
	said   string
}

func (o *outcome) Fatal(args ...any) {
	o.failed, o.said = true, fmt.Sprint(args...)
	runtime.Goexit()
}

func (o *outcome) Fatalf(format string, args ...any) { o.Fatal(fmt.Sprintf(format, args...)) }

func (o *outcome) Skip(args ...any) {
	o.said = fmt.Sprint(args...)
	runtime.Goexit()
}

// capture lets f end a test other than this one.
func capture(t *testing.T, f func(testing.TB)) *outcome {
	t.Helper()
	o := &outcome{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(o)
	}()
	<-done
	return o
}
