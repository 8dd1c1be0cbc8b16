package redisserver

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	doTimeout    = time.Minute     // see Server.Timeout
	readyTimeout = 2 * time.Minute // for a server to answer, or a cluster or a replica to agree, also without CPU time
	portAttempts = 10
)

// Server is a redis-server process. Its methods fail the test when the process
// does not do as told. They belong to the goroutine of the test, except for
// Addr, URL and Do, which any may call.
type Server struct {
	// Timeout bounds each Do, from dialling to the last byte of the reply. It is
	// a minute at first.
	Timeout time.Duration

	// Password, if there is one, is what Do logs in with as the default user. It
	// sets none: that is for "--requirepass" or CONFIG SET requirepass.
	Password string

	tb     testing.TB
	binary string
	dir    string
	config string      // the file, where there must be one
	tls    *tls.Config // for clients, where the server speaks TLS
	port   int
	args   []string
	proc   *process
}

// Start runs a redis-server with the given further arguments, such as
// "--maxmemory", "1mb", and returns when it answers. Where there is no
// redis-server the test is skipped, or fails if SASH_REQUIRE_REDIS=1.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s := prepare(tb, args)
	s.start()
	return s
}

// StartReplica runs a server that replicates another, and returns when it has
// caught up and follows.
func StartReplica(tb testing.TB, of *Server) *Server {
	tb.Helper()
	s := Start(tb, "--replicaof", "127.0.0.1", strconv.Itoa(of.port))
	var info string
	if !poll(func() bool {
		info = s.info("INFO", "replication")
		return field(info, "master_link_status") == "up"
	}) {
		tb.Fatalf("redisserver: the replica at %s does not follow %s:\n%s", s.Addr(), of.Addr(), info)
	}
	return s
}

// Addr is the host and port on which the server listens.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is the address in the form that Redis clients parse.
func (s *Server) URL() string {
	scheme := "redis"
	if s.tls != nil {
		scheme = "rediss"
	}
	return scheme + "://" + s.Addr() + "/0"
}

// PID is the process id, which is another after a Restart.
func (s *Server) PID() int { return s.proc.pid() }

// Kill ends the server at once, as a crash would, and returns when it is gone.
// It does nothing to a server that is gone already.
func (s *Server) Kill() {
	s.tb.Helper()
	if err := s.proc.signal(os.Kill); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.tb.Fatalf("redisserver: kill %s: %v", s.Addr(), err)
	}
	<-s.proc.done
}

// Restart runs the server again on the same port with the same arguments,
// after killing it if it still runs. It comes back empty, unless an argument or
// SAVE made it keep its data; a node of a cluster comes back into its cluster.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Kill()
	if err := s.launch(s.answers); err != nil {
		s.tb.Fatalf("redisserver: restart: %v", err)
	}
}

// Pause stops the process without ending it: its connections stay open and the
// kernel accepts new ones, but nothing is answered until Resume.
func (s *Server) Pause() {
	s.tb.Helper()
	if err := s.proc.signal(stopSignal); err != nil {
		s.tb.Fatalf("redisserver: pause %s: %v", s.Addr(), err)
	}
	if !poll(s.proc.stopped) { // until then it may answer
		s.tb.Fatalf("redisserver: %s was not paused", s.Addr())
	}
}

// Resume lets a paused server run on. It then works through all it was sent
// meanwhile, even by clients that have given up.
func (s *Server) Resume() {
	s.tb.Helper()
	if err := s.proc.signal(contSignal); err != nil {
		s.tb.Fatalf("redisserver: resume %s: %v", s.Addr(), err)
	}
}

// Do sends one command over a connection of its own and returns the reply: a
// string, an int64, nil or a []any of these. What Redis refuses is a
// [ReplyError], returned as the error, or as an element where it is part of an
// array.
func (s *Server) Do(args ...string) (any, error) {
	return s.do(s.Timeout, args)
}

// info is the text a server gives about itself, or the error it met.
func (s *Server) info(args ...string) string {
	reply, err := s.do(doTimeout, args)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(reply)
}

// do sends one command over a new connection and reads one reply.
func (s *Server) do(timeout time.Duration, args []string) (any, error) {
	conn, err := s.send(timeout, args)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	replies := bufio.NewReader(conn)
	if s.Password != "" {
		// A login that fails is no error: a server may want no password any more.
		if _, err := decode(replies); err != nil {
			return nil, err
		}
	}
	reply, err := decode(replies)
	if err != nil {
		return nil, err
	}
	if refused, ok := reply.(ReplyError); ok {
		return nil, refused
	}
	return reply, nil
}

// send sends one command over a new connection.
func (s *Server) send(timeout time.Duration, args []string) (net.Conn, error) {
	deadline := time.Now().Add(timeout)
	conn, err := s.dial(&net.Dialer{Deadline: deadline})
	if err != nil {
		return nil, err
	}
	text := encode(args)
	if s.Password != "" {
		text = encode([]string{"AUTH", s.Password}) + text
	}
	err = conn.SetDeadline(deadline)
	if err == nil {
		_, err = io.WriteString(conn, text)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func (s *Server) dial(dialer *net.Dialer) (net.Conn, error) {
	if s.tls != nil {
		return tls.DialWithDialer(dialer, "tcp", s.Addr(), s.tls)
	}
	return dialer.Dial("tcp", s.Addr())
}

// prepare makes a server that does not run yet and will end with the test.
func prepare(tb testing.TB, args []string) *Server {
	tb.Helper()
	s := &Server{Timeout: doTimeout, tb: tb, binary: find(tb), dir: tb.TempDir(), args: slices.Clone(args)}
	tb.Cleanup(s.end)
	return s
}

// start chooses a port and runs the server there.
func (s *Server) start() {
	s.tb.Helper()
	for attempt := 1; ; attempt++ {
		s.port = freePort(s.tb)
		err := s.launch(s.answers)
		if err == nil {
			return
		}
		// A free port is free only until another test takes it.
		if !errors.Is(err, syscall.EADDRINUSE) || attempt == portAttempts {
			s.tb.Fatalf("redisserver: %v", err)
		}
	}
}

// end kills the process, since a server looks for a signal to end by itself ten times a second only.
func (s *Server) end() {
	if s.proc == nil {
		return
	}
	_ = s.proc.signal(os.Kill) // which fails if it has ended
	<-s.proc.done
}

// launch starts the process on s.port, for once with more arguments, and returns
// when it is ready.
func (s *Server) launch(ready func() bool, more ...string) error {
	var args []string
	if s.config != "" {
		args = append(args, s.config) // must come first
	}
	port := "--port"
	if s.tls != nil {
		port = "--tls-port"
	}
	args = append(args,
		port, strconv.Itoa(s.port),
		"--bind", "127.0.0.1",
		"--dir", s.dir,
		"--save", "",
		"--appendonly", "no",
		"--daemonize", "no",
		"--repl-diskless-sync-delay", "0", // else each replica waits 5 s for others
	)
	args = slices.Concat(args, s.args, more)
	// A file and not a pipe, which someone would have to drain.
	log, err := os.Create(filepath.Join(s.dir, "redis.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	proc, err := run(s.binary, args, log)
	if err != nil {
		return err
	}
	s.proc = proc

	answers := poll(func() bool { return proc.exited() || ready() })
	output, _ := os.ReadFile(log.Name()) // to say more about a failure, so its own is no matter
	switch {
	case proc.exited() && strings.Contains(string(output), syscall.EADDRINUSE.Error()[1:]):
		return fmt.Errorf("%w: redis-server %q:\n%s", syscall.EADDRINUSE, args, output)
	case proc.exited():
		return fmt.Errorf("redis-server %q ended with %v:\n%s", args, proc.state(), output)
	case !answers:
		return fmt.Errorf("redis-server %q does not answer after %v:\n%s", args, readyTimeout, output)
	}
	return nil
}

// answers tells whether this very process answers, and not one that took the
// port first.
func (s *Server) answers() bool {
	if _, err := s.do(doTimeout, []string{"PING"}); err != nil {
		// A server that wants a password says so: it is there, and says no more.
		var refused ReplyError
		return errors.As(err, &refused) && strings.HasPrefix(refused.Error(), "NOAUTH")
	}
	return s.isUp()
}

// isUp tells the same of one that may not do more than give information.
func (s *Server) isUp() bool {
	return field(s.info("INFO", "server"), "process_id") == strconv.Itoa(s.PID())
}

// find gives the path of redis-server, or of what SASH_REDIS_SERVER names, or ends the test.
func find(tb testing.TB) string {
	tb.Helper()
	if named := os.Getenv("SASH_REDIS_SERVER"); named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			tb.Fatalf("redisserver: SASH_REDIS_SERVER: %v", err)
		}
		return path
	}
	path, err := exec.LookPath("redis-server")
	if err == nil {
		return path
	}
	const missing = "redisserver: redis-server is not on PATH. Install it (apt-get install redis-server, " +
		"dnf install redis, apk add redis, brew install redis) or run `make test INSTALL=1`, which does."
	if os.Getenv("SASH_REQUIRE_REDIS") == "1" {
		tb.Fatal(missing)
	}
	tb.Skip(missing)
	return ""
}
