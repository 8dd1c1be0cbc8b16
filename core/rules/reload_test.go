package rules_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/rules"
)

// file is a file of rules that a test changes.
type file struct {
	t    *testing.T
	path string
}

func newFile(t *testing.T, text string) file {
	f := file{t, filepath.Join(t.TempDir(), "limits.yaml")}
	f.write(text)
	return f
}

// write replaces the file at once, as editors and deployments do.
func (f file) write(text string) {
	f.t.Helper()
	if err := os.WriteFile(f.path+".new", []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(f.path+".new", f.path); err != nil {
		f.t.Fatal(err)
	}
}

// reload changes the file and loads it again.
func (f file) reload(l *limited, text string) {
	f.t.Helper()
	f.write(text)
	if err := l.Reload(); err != nil {
		f.t.Fatal(err)
	}
}

func (f file) load(opts ...rules.Option) *limited {
	f.t.Helper()
	set, err := rules.Load(f.path, opts...)
	if err != nil {
		f.t.Fatal(err)
	}
	return &limited{f.t, set, limiterOf(f.t, set)}
}

const userRule = "rules:\n- {name: api, key: {value: user}, limits: [%s]}\n"

// What was used is kept when limits change, and when other rules come and go.
func TestReloadKeepsWhatWasUsed(t *testing.T) {
	f := newFile(t, fmt.Sprintf(userRule, "5/hour, 100/day"))
	l := f.load()
	before := l.Loaded()
	l.want("GET /", "user=a", 3, 3)
	hash := l.Hash()
	for text, left := range map[string]int{
		fmt.Sprintf(userRule, "7/hour"): 4,
		"apply: all\nrules:\n- {name: x, key: ip, limits: [100/hour]}\n" +
			strings.TrimPrefix(fmt.Sprintf(userRule, "{limit: 3/day, name: other}"), "rules:\n"): 0,
		"domain: default\n" + fmt.Sprintf(userRule, "10/hour, 4/day"): 1,
	} {
		f.reload(l, text)
		for _, r := range l.Explain(with("GET /", "user=a")).Rules {
			for _, limit := range r.Limits {
				if r.Name == "api" && limit.Used != 3 {
					t.Errorf("%s\nused %d, want 3", text, limit.Used)
				}
			}
		}
		if d := l.Explain(with("GET /", "user=a")).Decision; d.Remaining != left {
			t.Errorf("%s\n%d left, want %d", text, d.Remaining, left)
		}
		if l.Hash() == hash || len(l.Hash()) != 64 || !l.Loaded().After(before) {
			t.Errorf("hash %s, loaded %v", l.Hash(), l.Loaded())
		}
	}
}

// The key route does not have the path, since what was used is kept when the path of a rule changes.
func TestReloadOfAnotherPath(t *testing.T) {
	const text = "rules:\n- {name: api, match: {path: %s}, key: route, limits: [5/hour]}\n"
	f := newFile(t, fmt.Sprintf(text, "/v1/"))
	l := f.load()
	l.want("GET /v1/a", "", 3, 3)
	f.reload(l, fmt.Sprintf(text, `"/{version}/{rest...}"`))
	l.want("HEAD /v2/a", "", 3, 2)
	l.want("POST /v2/a", "", 6, 5)
}

// The failure policy is one of the limiter, which a reload does not make anew. Other mistakes are reported beside it.
func TestReloadOfAnotherFailurePolicy(t *testing.T) {
	f := newFile(t, minimal)
	l := f.load()
	f.reload(l, "failure: local\n"+minimal)
	f.write("failure: open\n" + strings.Replace(minimal, "ip", "user", 1))
	got := unjoin(l.Reload())
	if len(got) != 2 || !strings.HasPrefix(got[0].Error(), f.path+":1:10: failure: the failure policy cannot change") {
		t.Errorf("%v", got)
	}
}

// Clients that were denied stay denied in an outage, also if the file is loaded again and requests are explained.
func TestDenialsOutlastAReload(t *testing.T) {
	for _, limits := range []string{"2/hour, 9/day", "2/month"} {
		text := fmt.Sprintf(userRule, limits)
		f := newFile(t, text)
		synctest.Test(t, func(t *testing.T) {
			s := new(coretest.FakeStore)
			l := f.load(rules.WithOptions(core.WithStore(s)))
			l.t = t
			l.follow("2/3 user=a")
			if e := l.Explain(with("GET /", "user=a")); e.Decision.Allowed {
				t.Errorf("%v, want a denial", e)
			}
			s.Fail(errDown)
			f.reload(l, text+"# other\n")
			l.follow("0/3 user=a")
			s.Fail(nil)
			must(t, l.Close())
		})
	}
}

// events has the events of limiters that are not those of requests.
type events chan core.Event

func newEvents() events { return make(events, 100) }

func (e events) observer() rules.Option {
	return rules.WithOptions(core.WithObserver(func(_ context.Context, one core.Event) {
		if !one.Outcome.IsDecision() {
			e <- one
		}
	}))
}

// next waits for the next event, which comes within an hour: in a bubble the time of a watch that finds nothing goes on
// for ever.
func (e events) next() core.Event {
	select {
	case one := <-e:
		return one
	case <-time.After(time.Hour):
		panic("no event within an hour")
	}
}

// watching runs a test of a set whose file is watched.
func watching(t *testing.T, text string, test func(t *testing.T, f file, l *limited, seen events)) {
	synctest.Test(t, func(t *testing.T) {
		f, seen := newFile(t, text), newEvents()
		l := f.load(seen.observer())
		go l.Watch(t.Context()) // it ends with the test
		test(t, f, l, seen)
	})
}

// capture returns the lines that slog writes.
func capture(t *testing.T) *bytes.Buffer {
	old, lines := slog.Default(), new(bytes.Buffer)
	slog.SetDefault(slog.New(slog.NewTextHandler(lines, nil)))
	t.Cleanup(func() { slog.SetDefault(old) })
	return lines
}

// A bad file changes nothing, and is told once with its mistakes. What is in force is logged, also when a file with
// mistakes is corrected to what is in force already.
func TestBadFileKeepsTheOldRules(t *testing.T) {
	lines := capture(t)
	good, bad := fmt.Sprintf(userRule, "2/hour"), "rules:\n- {nane: api, key: ip, limits: [x]}\n"
	watching(t, good, func(t *testing.T, f file, l *limited, seen events) {
		for i, step := range [][2]string{
			{"wait", ""}, {bad, "ERROR"}, {"touch", ""}, {good, "INFO"}, {good + "# other\n", "INFO"}, {bad, "ERROR"},
			{"ask", "ERROR"}, {good + "# other\n", "INFO"}, {"ask", "INFO"},
		} {
			hash := l.Hash()
			lines.Reset()
			switch step[0] {
			case "wait", "touch": // Watch reports neither what Load has read nor what is as bad as before
				must(t, os.Chtimes(f.path, time.Now(), time.Now()))
				time.Sleep(time.Minute)
			case "ask": // who asks is told again
				if err := l.Reload(); (err == nil) != (step[1] == "INFO") {
					t.Errorf("step %d: Reload returned %v", i, err)
				}
			default:
				f.write(step[0])
			}
			if step[1] != "" {
				e, want := seen.next(), event.Reloaded
				if step[1] == "ERROR" {
					want = event.ReloadFailed
				}
				if e.Outcome != want || want == event.ReloadFailed && !strings.Contains(fmt.Sprint(e.Err), ":2:4: ") {
					t.Errorf("step %d: %v: %v", i, e, e.Err)
				}
			}
			text := lines.String()
			told := map[string]string{"ERROR": "did you mean", "INFO": "rules=1 hash=" + l.Hash()}[step[1]]
			if strings.Count(text, "\n") != min(len(step[1]), 1) || !strings.Contains(text, told) ||
				!strings.Contains(text, step[1]) || step[1] != "INFO" && l.Hash() != hash {
				t.Errorf("step %d: hash %s, before %s: %s", i, l.Hash(), hash, text)
			}
		}
		l.want("GET /", "user=a", 3, 2)
	})
}

// Signals are the program's. Watch, which is told of a change, does not take them.
func TestWatchTakesNoSignals(t *testing.T) {
	own := make(chan os.Signal, 1)
	signal.Notify(own, syscall.SIGHUP)
	defer signal.Stop(own)
	watching(t, fmt.Sprintf(userRule, "2/hour"), func(t *testing.T, f file, l *limited, seen events) {
		f.write(fmt.Sprintf(userRule, "3/hour"))
		seen.next() // Watch has begun
		must(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		<-own
		f.write(fmt.Sprintf(userRule, "4/hour"))
		if seen.next(); l.Explain(with("GET /", "user=a")).Rules[0].Limits[0].Quota != 4 {
			t.Error("the file was loaded again before it had changed")
		}
	})
}

// Whichever way a file is changed, its rules come into force.
func TestWatchSeesEachChange(t *testing.T) {
	must := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			must(t, err)
		}
	}
	link := func(to, path string) {
		must(os.Symlink(to, path+".new"), os.Rename(path+".new", path))
	}
	for name, change := range map[string]func(f file, seen events, text string, version int){
		"another file": func(f file, _ events, text string, _ int) { f.write(text) },
		"an edit in place": func(f file, _ events, text string, _ int) { // of which neither length nor time tell
			before, err := os.Stat(f.path)
			must(err, os.WriteFile(f.path, []byte(text), 0o600), os.Chtimes(f.path, before.ModTime(), before.ModTime()))
		},
		"a link to a link, as in a ConfigMap of Kubernetes": func(f file, _ events, text string, version int) {
			dir := filepath.Dir(f.path)
			data := filepath.Join(dir, fmt.Sprintf("..v%d", version))
			must(os.Mkdir(data, 0o700), os.WriteFile(filepath.Join(data, "limits.yaml"), []byte(text), 0o600))
			link(data, filepath.Join(dir, "..data"))
			link(filepath.Join("..data", "limits.yaml"), f.path)
		},
		"a file that cannot be read for a while": func(f file, seen events, text string, _ int) {
			f.write(text)
			must(os.Rename(f.path, f.path+".away"))
			if e := seen.next(); e.Outcome != event.ReloadFailed || !errors.Is(e.Err, os.ErrNotExist) {
				t.Errorf("%v: %v", e, e.Err)
			}
			must(os.Rename(f.path+".away", f.path))
		},
	} {
		watching(t, fmt.Sprintf(userRule, "2/hour"), func(t *testing.T, f file, l *limited, seen events) {
			for quota := 3; quota < 6; quota++ {
				change(f, seen, fmt.Sprintf(userRule, fmt.Sprintf("%d/hour", quota)), quota)
				if e := seen.next(); e.Outcome != event.Reloaded {
					t.Errorf("%s: %v", name, e)
				}
				l.want("GET /", fmt.Sprintf("user=%d", quota), 6, quota)
			}
		})
	}
}

// An observer may call Reload, which asks no observer while others wait for it.
func TestObserverReloads(t *testing.T) {
	f := newFile(t, fmt.Sprintf(userRule, "2/hour"))
	var set *rules.Set
	var outcomes []event.Outcome
	l := f.load(rules.WithOptions(core.WithObserver(func(_ context.Context, e core.Event) {
		if outcomes = append(outcomes, e.Outcome); e.Outcome == event.ReloadFailed {
			f.write(fmt.Sprintf(userRule, "3/hour")) // the last good one
			must(t, set.Reload())
		}
	})))
	set = l.Set
	f.write("rules:\n")
	if err := set.Reload(); err == nil {
		t.Error("Reload returned no error")
	}
	if !slices.Equal(outcomes, []event.Outcome{event.ReloadFailed, event.Reloaded}) {
		t.Errorf("events %v", outcomes)
	}
	l.want("GET /", "user=a", 4, 3)
}

func TestTextCannotBeReloaded(t *testing.T) {
	set := parse(t, minimal)
	if set.Reload() == nil || set.Watch(t.Context()) == nil {
		t.Error("there is no error")
	}
}

func full(l core.LimitState) bool { return l.Used >= l.Quota }

// While rules change all the time, each decision is one by a whole set of rules.
func TestReloadUnderLoad(t *testing.T) {
	const workers = 64
	versions := []string{
		"apply: all\nrules:\n- {name: a, key: {value: user}, limits: [40/hour]}\n- {name: b, key: {value: user}, " +
			"limits: [40/hour]}\n",
		"apply: all\nrules:\n- {name: a, key: {value: user}, limits: [80/hour, {limit: 160/day, name: day}]}\n" +
			"- {name: b, key: {value: user}, limits: [80/hour]}\n- {name: c, key: {value: user}, limits: " +
			"[1000/hour]}\n",
		"apply: all\nrules:\n- {name: b, key: {value: user}, limits: [60/hour]}\n- {name: a, key: {value: user}, " +
			"limits: [60/hour]}\n",
	}
	// The sets of quotas that a decision may have been made by.
	whole := map[string]bool{"[40 40]": true, "[80 160 80 1000]": true, "[60 60]": true}
	f := newFile(t, versions[0])
	l := f.load()
	duration, every := time.Duration(testlen.Of(1, 10))*time.Second, 50*time.Millisecond
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var asked atomic.Int64
	var admitted [8]atomic.Int64 // by user
	for w := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for ; ; runtime.Gosched() {
				select {
				case <-stop:
					return
				default:
				}
				user := r.IntN(len(admitted))
				d, err := l.ask(with("GET /", fmt.Sprintf("user=u%d", user)))
				var quotas []int
				for _, limit := range d.Limits() {
					quotas = append(quotas, limit.Quota)
				}
				if err != nil || !whole[fmt.Sprint(quotas)] || d.Allowed == slices.ContainsFunc(d.Limits(), full) {
					t.Errorf("allowed %v by %+v, %v", d.Allowed, d.Limits(), err)
					return
				}
				if asked.Add(1); d.Allowed {
					admitted[user].Add(1)
				}
			}
		})
	}
	reloads := 0
	began, ticks := time.Now(), time.NewTicker(every)
	// On a busy machine, too, every user asks for more than the least quota.
	for ; time.Since(began) < duration || asked.Load() < 1000 && !t.Failed(); <-ticks.C {
		reloads++
		f.write(versions[reloads%len(versions)])
		if err := l.Reload(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
	f.reload(l, versions[1])
	for user := range admitted {
		e := l.Explain(with("GET /", fmt.Sprintf("user=u%d", user)))
		n := int(admitted[user].Load())
		if n > 80 || n < 40 {
			t.Errorf("user %d was admitted %d times, want 40 to 80", user, n)
		}
		for _, r := range e.Rules[:2] {
			if r.Limits[0].Used != n {
				t.Errorf("user %d, rule %s: %d used, and %d were admitted", user, r.Name, r.Limits[0].Used, n)
			}
		}
	}
}
