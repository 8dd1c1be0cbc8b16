// The command instructions counts what Redis executes for one take of a store, path by path, with callgrind. It needs
// valgrind, and redis-server or what SASH_REDIS_SERVER names:
//
//	go run ./instructions            # all paths, by one caller and by 64 at once, in three minutes
//	go run ./instructions weighted   # those whose names contain the text
//
// Counts differ by less than a hundredth from run to run by one caller. Those of 64 depend on the size of batches, too.
package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
)

func main() {
	if err := run(strings.Join(os.Args[1:], " ")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(only string) error {
	folder, err := os.MkdirTemp("", "instructions")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	s, err := start(folder)
	if err != nil {
		return err
	}
	defer s.end()
	fmt.Printf("%-46s %12s %12s\n", "thousands of instructions a take", "one caller", "64 callers")
	for _, p := range paths {
		if !strings.Contains(p.name, only) {
			continue
		}
		var counts [2]float64
		for i, callers := range []int{1, 64} {
			if counts[i], err = s.measure(p, callers); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		fmt.Printf("%-46s %12.1f %12.1f\n", p.name, counts[0]/1000, counts[1]/1000)
	}
	return nil
}

// server is a Redis that runs under callgrind.
type server struct {
	command *exec.Cmd
	folder  string
	rdb     *redis.Client
	dumps   int
}

func start(folder string) (*server, error) {
	const port = "17911"
	program := cmp.Or(os.Getenv("SASH_REDIS_SERVER"), "redis-server")
	s := &server{folder: folder, command: exec.Command("valgrind", "--tool=callgrind",
		"--callgrind-out-file="+filepath.Join(folder, "out"), program,
		"--port", port, "--save", "", "--appendonly", "no", "--dir", folder)}
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	s.rdb = redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:" + port, ReadTimeout: time.Minute, DialTimeout: time.Minute, MaxRetries: -1,
	})
	for began := time.Now(); ; time.Sleep(time.Second) {
		err := s.rdb.Ping(context.Background()).Err()
		if err == nil {
			return s, nil
		}
		if time.Since(began) > time.Minute {
			s.end()
			return nil, err
		}
	}
}

func (s *server) end() {
	s.rdb.Close()
	s.command.Process.Kill() //nolint:errcheck // it has ended before
	s.command.Wait()         //nolint:errcheck // it was killed
}

// control has callgrind do something with its counts.
func (s *server) control(option string) error {
	return exec.Command("callgrind_control", option, strconv.Itoa(s.command.Process.Pid)).Run()
}

// count returns how many instructions the server has executed since its counts were set to zero.
func (s *server) count() (float64, error) {
	if err := s.control("-d"); err != nil {
		return 0, err
	}
	s.dumps++
	file, err := os.Open(filepath.Join(s.folder, fmt.Sprint("out.", s.dumps)))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "summary: "); ok {
			return strconv.ParseFloat(text, 64)
		}
	}
	return 0, fmt.Errorf("%s has no summary", file.Name())
}

const (
	keys  = 64 // that callers draw from in turn
	takes = 10 // of each key are measured
)

// measure returns how many instructions a take of the path needs if so many callers ask at once.
func (s *server) measure(p path, callers int) (float64, error) {
	ctx := context.Background()
	if err := s.rdb.FlushAll(ctx).Err(); err != nil {
		return 0, err
	}
	a := &asker{path: p, store: redisstore.New(s.rdb)}
	for n := range p.fill {
		if err := a.askAll(callers, 1, a.filled(n)); err != nil {
			return 0, err
		}
	}
	if err := a.askAll(callers, 2, p.take); err != nil { // so that plans know which script they need
		return 0, err
	}
	if err := s.control("-z"); err != nil {
		return 0, err
	}
	if err := a.askAll(callers, takes, p.take); err != nil {
		return 0, err
	}
	n, err := s.count()
	return n / (keys * takes), err
}

// asker sends the takes of a path.
type asker struct {
	path  path
	store store.Store
	id    atomic.Uint64
	last  [keys]uint64 // bookings
}

// filled returns how a log is filled before the takes are measured: by the same takes, or by single units.
func (a *asker) filled(n int) take {
	t := a.path.take
	if t.mode = store.ModeCharge; a.path.units && n > 0 {
		t.costs = nil
	}
	return t
}

// askAll has callers send each number of takes for each key.
func (a *asker) askAll(callers, each int, t take) error {
	var wg sync.WaitGroup
	errs := make([]error, callers)
	for caller := range callers {
		wg.Go(func() {
			for range each {
				for key := caller; key < keys; key += callers {
					if err := a.ask(key, t); err != nil {
						errs[caller] = err
						return
					}
				}
			}
		})
	}
	wg.Wait()
	return cmp.Or(errs...)
}

func (a *asker) ask(key int, t take) error {
	id := a.id.Add(1)
	all := make([]store.Take, len(a.path.plans))
	for i, plan := range a.path.plans {
		all[i] = store.Take{
			Key: store.NewKey(fmt.Sprint("log", i), strconv.Itoa(key)), Plan: plan, Cost: 1, ID: id, Mode: t.mode,
		}
		if t.costs != nil {
			all[i].Cost = t.costs[i]
		}
	}
	if l, ok := a.store.(store.Leaser); ok && a.path.booked > 0 {
		b := store.Booking{
			Take: all[0], ID: a.id.Add(1), Most: 30, Share: 4, Lease: store.LongestLease,
			Settled: a.last[key], Used: a.path.booked,
		}
		a.last[key] = b.ID
		_, err := l.Book(context.Background(), b)
		return err
	}
	err := decide(a.store, all)
	if s, ok := a.store.(store.Settler); ok && err == nil && a.path.settled > 0 {
		last := all[len(all)-1]
		err = s.Settle(context.Background(), store.Settlement{Key: last.Key, ID: last.ID, Cost: a.path.settled})
	}
	return err
}
