// The command benchmarks measures sash beside other rate limiters, and beside
// the least that the same work can cost:
//
//	go run .             # all of it, about a quarter of an hour; writes results, charts and the tables of README.md
//	go run . -quick      # a look at all of it in a minute; writes nothing
//	go run . -only redis # one part
//	go run . -draw       # the charts and tables of the last results again
//	go run . accuracy    # how exact each limiter is, in a few seconds; writes a chart and the tables of README.md
//	go run . leases      # what leases are worth, in minutes; writes results, a chart and the tables of README.md
//
// It is a module of its own, so that its contestants are nobody's dependencies.
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
	began  ticks
	redis  *server // nil until a part wants it
	tables []*Table
	err    error // why it has failed, though it has results
}

var parts = []struct {
	name string
	do   func(*run)
}{
	{"redis", (*run).checks},
	{"server", (*run).serverCost},
	{"bytes", (*run).serverBytes},
	{"memory", (*run).memory},
	{"expire", (*run).expire},
	{"request", (*run).requests},
	{"growth", (*run).growth},
	{"loopback", (*run).loopback},
	{"share", (*run).share},
	{"leases", (*run).leases},
}

// whole is the parts of a whole run. The others are those of go run . leases.
const whole = "redis,server,bytes,memory,expire,request,growth,loopback"

func main() {
	if asChild() {
		return
	}
	quick := flag.Bool("quick", false, "one short round, for trying: its numbers mean little")
	only := flag.String("only", whole, "the parts to run, with commas between; share and leases are two more")
	draw := flag.Bool("draw", false, "run nothing: draw the charts and tables of the last results again")
	out := flag.String("out", "", "the folder for results, charts and the tables of README.md; "+
		"by default this one, after a whole run")
	flag.Parse()
	if *out == "" && (*draw || !*quick && *only == whole) {
		*out = "."
	}
	last, write := "latest.json", (*results).write
	switch word := strings.Join(flag.Args(), " "); word {
	case "":
	case "accuracy":
		finish(accuracy(cmp.Or(*out, "."), judged))
		return
	case "leases":
		last, write, *only = "leases.json", (*results).writeLeases, "share,leases"
	default:
		finish(fmt.Errorf("%q: the words that this program knows are accuracy and leases", word))
	}

	if *draw {
		results, err := lastResults(*out, last)
		if err == nil {
			err = write(results, *out)
		}
		finish(err)
		return
	}

	r := &run{rounds: 3, span: 800 * time.Millisecond, million: 1_000_000, start: time.Now(), began: cpuTime()}
	if *quick {
		r.rounds, r.span, r.million = 1, 160*time.Millisecond, 100_000
	}
	// In a heap of nothing the collector would run ten times as often as in
	// that of a server.
	heap := make([]byte, 64<<20)
	for _, part := range parts {
		if slices.Contains(strings.Split(*only, ","), part.name) {
			part.do(r)
		}
	}
	runtime.KeepAlive(heap)
	results := r.results()
	fmt.Print(results.text())
	r.say("done; others had %.0f %% of the machine", 100*results.Others)
	if *out != "" {
		r.err = errors.Join(r.err, write(results, *out))
	}
	finish(r.err)
}

func finish(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (r *run) table(name, title string, columns ...string) *Table {
	t := &Table{Name: name, Title: title, Columns: columns, Reference: make(map[string]string)}
	r.tables = append(r.tables, t)
	return t
}

// more is how many rounds short turns have: they are noisier.
func (r *run) more() int { return 2*r.rounds - 1 }

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%4.0fs %s\n", time.Since(r.start).Seconds(), fmt.Sprintf(format, args...))
}
