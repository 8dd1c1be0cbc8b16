package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// accuracyLimit is the limit that all are held to.
var accuracyLimit = limit{quota: 100, window: time.Minute, keys: 1}

// trial is what a contestant has answered to a trace.
type trial struct {
	contestant
	trace trace
	asked []asked
	score score
	err   error // why it has no score

	limiter limiter // kept, because ulule/limiter's finalizer must not talk to its goroutine from outside of the bubble
}

// accuracy replays the traces through the contestants, prints how exact each was, and writes the same, with a chart,
// to a folder. It fails if one that should be exact was not.
func accuracy(dir string, contestants func(redis.UniversalClient) []contestant) error {
	r := new(run)
	addr := r.server().Addr()
	var trials []*trial
	inBubble(func() { trials = replays(contestants(newInStep(addr))) })
	r.redis.end()
	text := accuracyText(trials)
	fmt.Print(text)
	files := map[string][]byte{"charts/accuracy.svg": accuracyChart(trials)}
	return errors.Join(verdict(trials), write(dir, "accuracy", text, files))
}

// replays has each contestant answer each trace, alone and anew. It must be called in a bubble.
func replays(contestants []contestant) (trials []*trial) {
	for _, c := range contestants {
		for _, t := range traces(accuracyLimit) {
			one := &trial{contestant: c, trace: t}
			one.err = one.replay()
			trials = append(trials, one)
		}
	}
	return trials
}

// replay asks for each request at its instant. Time stands still during a call, so these are the instants that the
// limiter sees.
func (t *trial) replay() (err error) {
	w := accuracyLimit.window
	time.Sleep(time.Until(time.Now().Truncate(w).Add(2 * w))) // where aligned windows begin
	if t.limiter, err = t.make(accuracyLimit); err != nil {
		return fmt.Errorf("%s: %w", t.name, err)
	}
	defer t.limiter.end()
	start := time.Now()
	for _, at := range t.trace.at {
		time.Sleep(time.Until(start.Add(at)))
		synctest.Wait() // for what else happens at this instant, such as the tick of a clock of seconds
		ok, err := t.limiter.check(context.Background(), t.name+" "+t.trace.name)
		if err != nil {
			return fmt.Errorf("%s: %s after %v: %w", t.name, t.trace.name, at, err)
		}
		t.asked = append(t.asked, asked{at, ok})
	}
	t.score = judge(accuracyLimit.quota, w, t.asked)
	return nil
}

// verdict returns an error if a contestant that should be exact was not, if none of that kind was judged, or if one
// has failed.
func verdict(trials []*trial) error {
	var errs []error
	judged := false
	for _, t := range trials {
		switch {
		case t.err != nil:
			errs = append(errs, t.err)
		case t.kind != exact:
		case !t.score.exact():
			errs = append(errs, fmt.Errorf("%s is not exact: %s: %d above the quota in one window, %d denied falsely",
				t.name, t.trace.name, t.score.over, len(t.score.denied)))
		default:
			judged = true
		}
	}
	if !judged && errs == nil {
		errs = append(errs, errors.New("nothing exact was judged"))
	}
	return errors.Join(errs...)
}

// accuracyText is two tables, with a row for each contestant and a column for each trace.
func accuracyText(trials []*trial) string {
	l := accuracyLimit
	over, denied := [][]string{{"", "worst"}}, [][]string{{"", "all"}}
	requests := []string{"requests", ""}
	n := 0
	for _, t := range traces(l) {
		over[0], denied[0] = append(over[0], t.name), append(denied[0], t.name)
		requests = append(requests, strconv.Itoa(len(t.at)))
		n += len(t.at)
	}
	requests[1] = strconv.Itoa(n)
	for of := range slices.Chunk(trials, len(over[0])-2) {
		o, d := []string{of[0].name, ""}, []string{of[0].name, ""}
		worst, all := 0, 0
		for _, t := range of {
			worst, all = max(worst, t.score.over), all+len(t.score.denied)
			o, d = append(o, t.cell(t.score.over)), append(d, t.cell(len(t.score.denied)))
		}
		o[1], d[1] = strconv.Itoa(worst), strconv.Itoa(all)
		over, denied = append(over, o), append(denied, d)
	}
	title := fmt.Sprintf("Admitted above the quota of %d in %.0f s, in the fullest window", l.quota, l.window.Seconds())
	return markdown(title, over) + "\n" + markdown("Denied although the window had room", append(denied, requests))
}

func (t *trial) cell(n int) string {
	if t.err != nil {
		return "failed"
	}
	return strconv.Itoa(n)
}
