package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/coretest/redistest"
)

// server is a Redis of our own, and what it says of itself.
type server struct {
	*redistest.Server
	rdb     *redis.Client
	program *program
}

// server starts it when it is first wanted.
func (r *run) server() *server {
	if r.redis == nil {
		p := new(program)
		s := redistest.Start(p)
		r.redis = &server{s, redis.NewClient(&redis.Options{Addr: s.Addr()}), p}
	}
	return r.redis
}

func (s *server) end() {
	s.rdb.Close()
	s.program.end()
}

func (s *server) do(args ...string) any {
	reply, err := s.Do(args...)
	if err != nil {
		s.program.Fatalf("%q: %v", args, err)
	}
	return reply
}

func (s *server) flush() { s.do("FLUSHALL") }

// spent is the time in µs that the server has spent in its only thread that does commands, with what it reads, parses
// and writes.
func (s *server) spent() (micros float64) {
	cpu := fmt.Sprint(s.do("INFO", "cpu"))
	for _, m := range regexp.MustCompile(`used_cpu_(?:user|sys)_main_thread:([\d.]+)`).FindAllStringSubmatch(cpu, -1) {
		seconds, _ := strconv.ParseFloat(m[1], 64)
		micros += seconds * 1e6
	}
	return micros
}

func (s *server) version() string {
	return regexp.MustCompile(`redis_version:(\S+)`).FindStringSubmatch(fmt.Sprint(s.do("INFO", "server")))[1]
}

// bytes is what all keys take.
func (s *server) bytes() (n int64) {
	keys, _ := s.do("KEYS", "*").([]any)
	for _, key := range keys {
		size, _ := s.do("MEMORY", "USAGE", fmt.Sprint(key), "SAMPLES", "0").(int64)
		n += size
	}
	return n
}

// program is the testing.TB of a program that is no test, as far as redistest asks for one.
type program struct {
	testing.TB // nil, and there for the method that nobody else can have

	cleanups []func()
}

func (p *program) Helper()          {}
func (p *program) Cleanup(f func()) { p.cleanups = append(p.cleanups, f) }
func (p *program) Skip(args ...any) { p.Fatalf("%s", fmt.Sprint(args...)) }

func (p *program) Fatal(args ...any) { p.Fatalf("%s", fmt.Sprint(args...)) }

func (p *program) Fatalf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	p.end()
	os.Exit(1)
}

func (p *program) TempDir() string {
	dir, err := os.MkdirTemp("", "sash-benchmarks-")
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (p *program) end() {
	for _, f := range slices.Backward(p.cleanups) {
		f()
	}
}
