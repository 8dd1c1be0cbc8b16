package redisserver_test

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

	"github.com/sashlimit/sash/core/internal/redisserver"
)

func TestStartTellsWhyRedisEnded(t *testing.T) {
	t.Parallel()
	got := capture(t, func(tb testing.TB) { redisserver.Start(tb, "--no-such-option", "1") })
	if !got.failed || !strings.Contains(got.said, "'no-such-option") {
		t.Errorf("failed: %v, said: %s", got.failed, got.said)
	}
}

func TestMissingRedis(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("SASH_REDIS_SERVER", "")

	t.Setenv("SASH_REQUIRE_REDIS", "")
	got := capture(t, func(tb testing.TB) { redisserver.Start(tb) })
	if got.failed || !strings.Contains(got.said, "apk add redis") {
		t.Errorf("not required: failed: %v, said: %s", got.failed, got.said)
	}
	t.Setenv("SASH_REQUIRE_REDIS", "1")
	got = capture(t, func(tb testing.TB) { redisserver.Start(tb) })
	if !got.failed || !strings.Contains(got.said, "make test") {
		t.Errorf("required: failed: %v, said: %s", got.failed, got.said)
	}
}

// A killed test process runs no Cleanup, and its servers must end all the same.
func TestServerDiesWithTestProcess(t *testing.T) {
	if os.Getenv("REDISTEST_CHILD") == "1" {
		fmt.Println("server " + redisserver.Start(t).Addr())
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

func TestClusterMovesSlots(t *testing.T) {
	t.Parallel()
	c := redisserver.StartCluster(t, 3)
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
	for _, node := range []*redisserver.Server{from, third} {
		refused(t, node, moved+to.Addr(), "GET", key)
	}
	to.Kill()
	if owner := c.Owner(key); owner != to {
		t.Errorf("after the move the owner is %s", owner.Addr())
	}
}

func TestProxyDropsReplies(t *testing.T) {
	t.Parallel()
	s := redisserver.Start(t)
	p := redisserver.StartProxy(t, s.Addr())
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

func TestProxyCutsReply(t *testing.T) {
	t.Parallel()
	s := redisserver.Start(t)
	p := redisserver.StartProxy(t, s.Addr())
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

func TestProxyIsABlackHole(t *testing.T) {
	t.Parallel()
	s := redisserver.Start(t)
	p := redisserver.StartProxy(t, s.Addr())
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
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
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

func want(t *testing.T, s *redisserver.Server, reply any, args ...string) {
	t.Helper()
	got, err := s.Do(args...)
	if err != nil || !reflect.DeepEqual(got, reply) {
		t.Errorf("%q: %#v, %v, want %#v", args, got, err, reply)
	}
}

func refused(t *testing.T, s *redisserver.Server, prefix string, args ...string) {
	t.Helper()
	got, err := s.Do(args...)
	var refusal redisserver.ReplyError
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
