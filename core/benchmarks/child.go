package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/redisstore"
)

// job is what this program does as a child of itself: it serves requests, or
// offers checks.
type job struct {
	Addrs   []string `json:"addrs"` // of Redis
	Cluster bool     `json:"cluster"`

	Framework string `json:"framework"` // that serves; if empty, checks are offered
	Limiter   string `json:"limiter"`   // of those sharing; if empty, sash

	Quota   int           `json:"quota"`
	Window  time.Duration `json:"window"`
	Keys    int           `json:"keys"`
	Workers int           `json:"workers"`
	Warm    time.Duration `json:"warm"`
	Span    time.Duration `json:"span"`
	Checks  int           `json:"checks"`

	// If it is not 0, requests come at random with this mean distance, and all are reported. This process makes its
	// part of them.
	Mean  time.Duration `json:"mean"`
	Part  int           `json:"part"`
	Parts int           `json:"parts"`
}

// report is a sample on its way to the parent.
type report struct {
	Checks  int           `json:"checks"`
	Allowed int           `json:"allowed"`
	Failed  int           `json:"failed"`
	Error   string        `json:"error"`
	Took    histogram     `json:"took"`
	Elapsed time.Duration `json:"elapsed"`
	Calls   []call        `json:"calls"`
}

const childJob = "SASH_BENCHMARKS_JOB"

// asChild does the job that a parent has left in the environment, if there is
// one. Whatever the parent dies of, its end of our standard input goes with it.
func asChild() bool {
	text := os.Getenv(childJob)
	if text == "" {
		return false
	}
	heap := make([]byte, 64<<20) // as in the parent
	var j job
	err := json.Unmarshal([]byte(text), &j)
	switch {
	case err != nil:
	case j.Framework != "":
		err = j.serve()
	default:
		err = j.offer()
	}
	runtime.KeepAlive(heap)
	finish(err)
	return true
}

// offer says when it is ready, waits for the word, and reports.
func (j job) offer() error {
	c, end := j.contestant()
	defer end()
	l, err := c.make(limit{quota: j.Quota, window: j.Window})
	if err != nil {
		return err
	}
	defer l.end()
	offer := load{keys: names(j.Keys), workers: j.Workers, span: j.Warm}
	if j.Mean > 0 { // dials, loads the script
		load{keys: []string{"another"}, workers: j.Workers, checks: j.Workers}.run(l.check)
	} else if j.Warm > 0 {
		offer.run(l.check)
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	offer.span, offer.checks = j.Span, j.Checks
	if j.Mean > 0 {
		for i, at := range poisson(j.Span, j.Mean) {
			if i%j.Parts == j.Part {
				offer.at = append(offer.at, at)
			}
		}
		offer.span, offer.checks = 0, len(offer.at)
	}
	s := offer.run(l.check)
	r := report{
		Checks:  s.checks,
		Allowed: s.allowed,
		Failed:  s.failed,
		Took:    s.took,
		Elapsed: s.elapsed,
		Calls:   s.calls,
	}
	if s.err != nil {
		r.Error = s.err.Error()
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

func (j job) contestant() (c contestant, end func()) {
	if j.Limiter == "" {
		store, end := j.store()
		return sash("sash", one, func(limit) core.Store { return store }), end
	}
	rdb := redis.NewClient(&redis.Options{Addr: j.Addrs[0]})
	all := sharing(rdb)
	at := slices.IndexFunc(all, func(c contestant) bool { return c.name == j.Limiter })
	return all[at], func() { rdb.Close() }
}

func (j job) store() (store core.Store, end func()) {
	if j.Cluster {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: j.Addrs})
		return redisstore.New(rdb), func() { rdb.Close() }
	}
	rdb := redis.NewClient(&redis.Options{Addr: j.Addrs[0]})
	return redisstore.New(rdb), func() { rdb.Close() }
}

// child is a process with a job.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(j job) (*child, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(context.Background(), self)} //nolint:gosec // it is this program
	c.cmd.Env = append(os.Environ(), childJob+"="+string(text))
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	return c, c.cmd.Start()
}

// end may come before the job is done.
func (c *child) end() {
	c.in.Close()
	_ = c.cmd.Wait() // what went wrong it has said itself
}

// together has several processes offer the same checks at once. In between,
// when all are ready, it calls began.
func (j job) together(processes int, began func()) (s sample, err error) {
	var children []*child
	defer func() {
		for _, c := range children {
			c.end()
		}
	}()
	for j.Part, j.Parts = 0, processes; j.Part < processes; j.Part++ {
		c, err := start(j)
		if err != nil {
			return s, err
		}
		children = append(children, c)
	}
	for _, c := range children {
		if _, err := c.out.ReadString('\n'); err != nil {
			return s, fmt.Errorf("a process does not get ready: %w", err)
		}
	}
	began()
	for _, c := range children {
		if _, err := io.WriteString(c.in, "go\n"); err != nil {
			return s, err
		}
	}
	for i, c := range children {
		var r report
		if err := json.NewDecoder(c.out).Decode(&r); err != nil {
			return s, fmt.Errorf("a process does not report: %w", err)
		}
		own := sample{checks: r.Checks, allowed: r.Allowed, failed: r.Failed, took: r.Took, calls: r.Calls}
		for k := range own.calls {
			own.calls[k].Process = i
		}
		if r.Error != "" {
			own.err = errors.New(r.Error)
		}
		s.merge(&own)
		s.elapsed = max(s.elapsed, r.Elapsed)
	}
	return s, nil
}
