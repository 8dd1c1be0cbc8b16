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
	"errors"
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

// measure returns how many instructions a request of the path needs if so many callers ask at once.
func (s *server) measure(p path, callers int) (float64, error) {
	ctx := context.Background()
	if err := s.rdb.FlushAll(ctx).Err(); err != nil {
		return 0, err
	}
	full, ok := redisstore.New(s.rdb).(store.Full)
	if !ok {
		return 0, errors.New("the store cannot settle")
	}
	a := &asker{path: p, store: full}
	for n := range p.fill {
		if err := a.askAll(callers, 1, func(key int) error { return a.fill(key, n) }); err != nil {
			return 0, err
		}
	}
	if err := a.askAll(callers, 2, a.ask); err != nil { // so that Redis has the scripts
		return 0, err
	}
	if err := s.control("-z"); err != nil {
		return 0, err
	}
	if err := a.askAll(callers, takes, a.ask); err != nil {
		return 0, err
	}
	n, err := s.count()
	return n / (keys * takes), err
}

// asker sends the requests of a path.
type asker struct {
	path

	store store.Full
	id    atomic.Uint64
}

// askAll has callers ask so many times for each key.
func (a *asker) askAll(callers, each int, ask func(key int) error) error {
	var wg sync.WaitGroup
	errs := make([]error, callers)
	for caller := range callers {
		wg.Go(func() {
			for range each {
				for key := caller; key < keys; key += callers {
					if err := ask(key); err != nil {
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

// fill sends the nth request that fills the logs: the same as is measured, or one of single units.
func (a *asker) fill(key, n int) error {
	all := a.takes(key, a.id.Add(1), store.ModeCharge)
	for i := range all {
		if all[i].Share = 0; a.units && n > 0 {
			all[i].Cost = 1
		}
	}
	return a.store.Take(context.Background(), all, make([]store.Answer, len(all)))
}

// ask sends a request that is measured.
func (a *asker) ask(key int) error {
	ctx, all := context.Background(), a.takes(key, a.id.Add(1), a.mode)
	answers := make([]store.Answer, len(all))
	err := a.store.Take(ctx, all, answers)
	if err != nil || a.settled == 0 {
		return err
	}
	n := len(all) - 1
	t, was := &all[n], all[n].Cost
	if a.mode == store.ModeAtMost {
		was = answers[n].Granted
	}
	return a.store.Settle(ctx, store.Settlement{Key: t.Key, Limit: t.Limit, ID: t.ID, Was: was, Cost: a.settled})
}
