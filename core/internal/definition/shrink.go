package definition

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// mostReplayed is how many steps are replayed to make a failing trace shorter.
const mostReplayed = 100_000

// report returns a failing trace that is as short as leaving out steps makes it.
func (tr *trace) report(t *testing.T, seed uint64, err error) string {
	all := len(tr.steps)
	steps, again, err := tr.shrink(t, tr.steps, err)
	var b strings.Builder
	fmt.Fprintf(&b, "SASH_SEED=%#x: step %d", seed, all)
	if !again {
		b.WriteString(", which does not fail again when the trace is replayed")
	} else {
		fmt.Fprintf(&b, ", made %d steps", len(steps))
	}
	first := max(0, len(steps)-40)
	var before, now time.Duration
	for i, s := range steps {
		switch now += s.pause; {
		case i == first:
			before = now
			fmt.Fprintf(&b, "; the first is at %d us since 1970", tr.began.Add(now).UnixMicro())
			fallthrough
		case i > first:
			fmt.Fprintf(&b, "\n%10v %s", now-before, s.text())
		}
	}
	fmt.Fprintf(&b, "\n%v", err)
	return b.String()
}

// shrink leaves out steps as long as what remains still fails. Those that remain keep their instants.
func (tr *trace) shrink(t *testing.T, steps []*step, err error) (least []*step, again bool, failed error) {
	replayed := 0
	replay := func(steps []*step) (failed error) {
		tries := 1
		if tr.kind.atOnce {
			tries = 8
		}
		for ; tries > 0 && failed == nil; tries-- {
			replayed += len(steps)
			tr.Run(t, func(t *testing.T) { failed = newRun(t, tr.Config, len(tr.keys), new(counts)).replay(steps) })
		}
		return failed
	}
	if replay(steps) == nil {
		return steps, false, err
	}
	for size := max(len(steps)/2, 1); ; size /= 2 {
		for from := 0; from < len(steps) && replayed < mostReplayed; {
			rest := without(steps, from, min(from+size, len(steps)))
			if failed := replay(rest); failed != nil {
				steps, err = rest, failed
			} else {
				from += size
			}
		}
		if size <= 1 {
			return steps, true, err
		}
	}
}

// without returns the steps but some. The one after them pauses for as long as they did.
func without(steps []*step, from, to int) []*step {
	rest := slices.Concat(steps[:from], steps[to:])
	if from < len(rest) {
		later := *rest[from]
		for _, s := range steps[from:to] {
			later.pause += s.pause
		}
		rest[from] = &later
	}
	return rest
}

func (x *run) replay(steps []*step) error {
	for _, s := range steps {
		if err := x.step(s); err != nil {
			return err
		}
	}
	return nil
}
