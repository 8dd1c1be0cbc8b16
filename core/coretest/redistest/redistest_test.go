package redistest_test

import (
	"bufio"
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
	want(t, s, nil, "BLPOP", "none", "0.001") // a nil array
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
	replies := []string{"", "+", "\r\n", "+OK\n", "hello\r\n", "$x\r\n", "$5\r\nab", ":x\r\n", "*x\r\n", "*2\r\n+OK\r\n"}
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
	s.Timeout = 50 * time.Millisecond
	if _, err := s.Do("INCR", "n"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("INCR while paused: %v", err)
	}
	s.Resume()
	s.Timeout = 5 * time.Second
	// The connection was accepted by the kernel and the request was read later.
	eventually(t, "the request made during the pause takes effect", func() bool {
		n, err := s.Do("GET", "n")
		return err == nil && n == "1"
	})
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
	if _, err := s.Do("GET", "k"); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("GET without the password: %v", err)
	}
}

func TestStartTellsWhyRedisEnded(t *testing.T) {
	t.Parallel()
	got := capture(t, func(tb testing.TB) { redistest.Start(tb, "--no-such-option", "1") })
	if !got.failed || !strings.Contains(got.said, "Bad directive") {
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
	child.Env = append(os.Environ(), "REDISTEST_CHILD=1", "SASH_REQUIRE_REDIS=1")
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
	nodes[1].Restart()
	eventually(t, "the node is back in its cluster", func() bool {
		info, err := nodes[0].Do("CLUSTER", "INFO")
		return err == nil && strings.Contains(fmt.Sprint(info), "cluster_state:ok")
	})
}

func TestClusterOfOne(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1)
	want(t, c.Nodes()[0], "OK", "SET", "k", "v")
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

func (c *client) send(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(c.conn, "INCR n\r\n"); err != nil {
		t.Fatal(err)
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
	for deadline := time.After(20 * time.Second); !done(); {
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
