// The command benchmarks measures sash beside other rate limiters, and beside the least that the same work can cost:
//
//	go run .              # speed and memory, in ten minutes
//	go run . accuracy     # how exact each limiter is, in a few seconds
//	go run . leases       # what leases are worth, in seven minutes
//
// Each writes its results, charts and the tables of README.md; with -draw, those of the last results again. It is a
// module of its own, so that its contestants are nobody's dependencies.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// run is one run of everything.
type run struct {
	rounds  int
	span    time.Duration // turns are parts of it
	million int           // keys, where many are wanted

	start  time.Time
	redis  *server // nil until a part wants it
	tables []*Table
	err    error // why it has failed, though it has results
}

// parts are what runs measure.
var parts = []struct {
	run, name string
	do        func(*run)
}{
	{"speed", "redis", (*run).checks},
	{"speed", "server", (*run).serverCost},
	{"speed", "bytes", (*run).serverBytes},
	{"speed", "memory", (*run).memory},
	{"speed", "request", (*run).requests},
	{"leases", "share", (*run).share},
	{"leases", "checks", (*run).leases},
}

func main() {
	if asChild() {
		return
	}
	quick := flag.Bool("quick", false, "one short round, for trying: its numbers mean little")
	only := flag.String("only", "", "some parts, with commas between, instead of all: "+
		"redis, server, bytes, memory, request; of leases: share, checks")
	draw := flag.Bool("draw", false, "run nothing: write the charts and tables of the last results again")
	out := flag.String("out", "", "the folder to write to; by default this one, after a whole run")
	flag.Parse()
	if *out == "" && *only == "" && !*quick {
		*out = "."
	}
	name := cmp.Or(strings.Join(flag.Args(), " "), "speed")
	switch {
	case name == "accuracy":
		finish(accuracy(cmp.Or(*out, "."), judged))
	case name != "speed" && name != "leases":
		finish(fmt.Errorf("%q: the words that this program knows are accuracy and leases", name))
	case *draw:
		results, err := lastResults(*out, name)
		if err == nil {
			err = results.write(*out, name)
		}
		finish(err)
	default:
		finish(measure(name, *only, *out, *quick))
	}
}

// measure runs some parts or all, and writes the results to a folder, if there is one.
func measure(name, only, out string, quick bool) error {
	r := &run{rounds: 3, span: 800 * time.Millisecond, million: 1_000_000, start: time.Now()}
	if quick {
		r.rounds, r.span, r.million = 1, 160*time.Millisecond, 100_000
	}
	// In a heap of nothing the collector would run ten times as often as in that of a server.
	heap := make([]byte, 64<<20)
	for _, part := range parts {
		if part.run == name && (only == "" || slices.Contains(strings.Split(only, ","), part.name)) {
			part.do(r)
		}
	}
	runtime.KeepAlive(heap)
	results := r.results()
	fmt.Print(results.text())
	if out == "" {
		return r.err
	}
	return errors.Join(r.err, results.write(out, name))
}

func finish(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// table begins a table whose ratios are to the row reference, if it has ratios.
func (r *run) table(name, title, reference string) *Table {
	t := &Table{Name: name, Title: title, Reference: reference}
	r.tables = append(r.tables, t)
	return t
}

// more is how many rounds short turns have: they are noisier.
func (r *run) more() int { return 2*r.rounds - 1 }

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%4.0fs %s\n", time.Since(r.start).Seconds(), fmt.Sprintf(format, args...))
}
