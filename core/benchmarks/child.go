package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// job is what this program does as a child of itself: it makes its part of requests that come at random.
type job struct {
	Addr    string        `json:"addr"`    // of Redis
	Limiter string        `json:"limiter"` // of those sharing
	Quota   int           `json:"quota"`
	Window  time.Duration `json:"window"`
	Workers int           `json:"workers"`
	Start   time.Time     `json:"start"` // of the requests
	Span    time.Duration `json:"span"`
	Mean    time.Duration `json:"mean"` // from one request to the next
	Part    int           `json:"part"`
	Parts   int           `json:"parts"`
}

const childJob = "SASH_BENCHMARKS_JOB"

// asChild does the job that a parent has left in the environment, if there is one.
func asChild() bool {
	text := os.Getenv(childJob)
	if text == "" {
		return false
	}
	var j job
	err := json.Unmarshal([]byte(text), &j)
	if err == nil {
		err = j.do()
	}
	finish(err)
	return true
}

// do makes the requests and prints the calls.
func (j *job) do() error {
	rdb := redis.NewClient(&redis.Options{Addr: j.Addr})
	defer rdb.Close()
	all := sharing(rdb)
	c := all[slices.IndexFunc(all, func(c contestant) bool { return c.name == j.Limiter })]
	l, err := c.make(limit{quota: j.Quota, window: j.Window})
	if err != nil {
		return err
	}
	defer l.end()
	load{keys: []string{"another"}, workers: j.Workers, checks: j.Workers}.run(l.check) // dials, loads the script
	var own []time.Duration                                                             // when
	for i, at := range poisson(j.Span, j.Mean) {
		if i%j.Parts == j.Part {
			own = append(own, at)
		}
	}
	offer := load{keys: names(1), workers: j.Workers, checks: len(own), keeps: true}
	offer.due = func(n int) time.Duration { return own[n] }
	if time.Until(j.Start) < 0 {
		return errors.New("a process was not ready in time")
	}
	time.Sleep(time.Until(j.Start))
	s := offer.run(l.check)
	return errors.Join(s.trouble(floor, false), json.NewEncoder(os.Stdout).Encode(s.calls))
}

// together has several processes make parts of the same requests at once.
func (j job) together(processes int) ([]call, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	j.Start, j.Parts = time.Now().Add(2*time.Second), processes
	calls, errs := make([][]call, processes), make([]error, processes)
	var wait sync.WaitGroup
	for i := range processes {
		j.Part = i
		text, err := json.Marshal(j)
		if err != nil {
			return nil, err
		}
		wait.Go(func() {
			cmd := exec.CommandContext(context.Background(), self) //nolint:gosec // it is this program
			cmd.Env = append(os.Environ(), childJob+"="+string(text))
			cmd.Stderr = os.Stderr
			said, err := cmd.Output()
			errs[i] = errors.Join(err, json.Unmarshal(said, &calls[i]))
			for k := range calls[i] {
				calls[i][k].Process = i
			}
		})
	}
	wait.Wait()
	return slices.Concat(calls...), errors.Join(errs...)
}
