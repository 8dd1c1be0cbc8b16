package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

const ada = "ada.lovelace@example.com" // an identity that is easily recognised

// adaError is what a callback's database may say.
type adaError struct{ user string }

func (e *adaError) Error() string { return "no row for " + e.user }

func byText(text string, err error) core.Key {
	return core.By(func(context.Context) (string, error) { return text, err })
}

// refusals are requests that are answered with 400, 500 or 503, and what the line in the log says. The policy is nine
// a minute and the key a text, unless they say otherwise.
var refusals = map[string]struct {
	status int
	policy core.Policy
	key    core.Key
	opts   []core.Option
	want   []string
}{
	"no header": {status: 400, key: core.ByHeader("X-API-Key", core.Unverified), want: []string{
		"level=WARN", `"sash: a request is refused (400)"`, `reason="it has no key"`, "key=ByHeader",
	}},
	"ByValue without its middleware": {status: 400, key: core.ByValue("user"), want: []string{
		"level=WARN", "(400)", "key=ByValue",
	}},
	"no address": {status: 400, key: core.Join(byText(ada, nil), byText("", nil)), want: []string{
		"(400)", "key=Join",
	}},
	"an unknown value": {status: 400, key: byText("", fmt.Errorf("%s: %w", ada, core.ErrNoKey)), want: []string{
		"(400)", "key=By ", `error="*fmt.wrapError *errors.errorString"`,
	}},
	"verify's database": {status: 500, key: core.ByHeader("X-User", func(_ context.Context, v string) (string, error) {
		return "", fmt.Errorf("%s: %w", v, &adaError{v})
	}), want: []string{
		"level=ERROR", `reason="its key function failed"`, "key=ByHeader", `error="*fmt.wrapError *core_test.adaError"`,
	}},
	"a callback's ConfigError": {status: 500, key: core.By(func(context.Context) (string, error) {
		_, err := core.ParseLimit(ada)
		return "", err
	}), want: []string{"its key function failed", "error=*store.ConfigError"}},
	"LimitBy returns none": {status: 500, policy: core.LimitBy(func(context.Context) core.Limits { return nil }),
		want: []string{
			`reason="sash: LimitBy(none): there are no limits; pass at least one, such as core.PerMinute(100)"`,
		}},
	"LimitBy returns limits of a unit without WithCostOf": {status: 500,
		policy: core.LimitBy(func(context.Context) core.Limits { return core.Limits{core.PerMinute(9).Of("tokens")} }),
		want:   []string{`reason="sash: WithCostOf(tokens): no function returns what a request costs; add core.With`}},
	"LimitBy returns a limit whose name is not valid": {status: 500,
		policy: core.LimitBy(func(context.Context) core.Limits {
			return core.Limits{{Quota: 1, Window: time.Second, Name: "pro plan"}}
		}),
		want: []string{`the name \"pro plan\" is not valid`}},
	"cost 0": {status: 500, opts: options(core.WithCost(func(context.Context) int { return 0 })), want: []string{
		`reason="sash: cost(0): a request costs at least 1 unit`,
	}},
	"a cost below 0 of the only unit": {status: 500, opts: negative, policy: core.PerMinute(9).Of("tokens"),
		want: []string{`reason="sash: WithCostOf(tokens): the cost in tokens is below 0; return 0 or more"`}},
	"a cost below 0 beside requests": {status: 500, opts: negative,
		policy: core.Limits{core.PerMinute(9), core.PerMinute(9).Of("tokens")},
		want:   []string{`reason="sash: WithCostOf(tokens): the cost in tokens is below 0; return 0 or more"`}},
	"a key that panics": {status: 500, key: core.By(panicking), want: []string{
		"a callback has panicked", `place="github.com/sashlimit/sash/core_test.panicking core/refusallog_test.go:`,
		"value=*core_test.adaError",
	}},
	"a cost that panics": {status: 500, opts: options(core.WithCost(func(context.Context) int {
		return []int{}[len(ada)]
	})), want: []string{"a callback has panicked", "core/refusallog_test.go:", "value=runtime.boundsError"}},
	"a list's key": {status: 500, opts: options(core.WithDenyList(byText("", errors.New(ada)), "x")), want: []string{
		"the key function of a list failed", `error="*gate.ListError *errors.errorString"`,
	}},
	"one key's trouble": {status: 503, opts: failing(&core.StoreError{
		Err: errors.New(ada), Class: "type", Advice: "delete " + ada, OneKey: true,
	}), want: []string{
		"(503)", "the store cannot serve its key", `error="*store.StoreError(type) *errors.errorString"`,
	}},
	"a cost that the store never serves": {status: 500, opts: failing(&core.ConfigError{
		Option: "store", Problem: "entries are single units", Remedy: "cost 1",
	}), want: []string{`reason="sash: store: entries are single units; cost 1"`}},
}

var negative = options(core.WithCostOf("tokens", func(context.Context) int { return -1 }))

func options(all ...core.Option) []core.Option { return all }

// failing has the store fail, and the limiter with it.
func failing(err error) []core.Option {
	s := &double{Full: core.NewMemoryStore(), take: func([]store.Take, func() error) error { return err }}
	return options(core.WithFailure(core.FailClosed), core.WithStore(s))
}

func panicking(context.Context) (string, error) { panic(&adaError{ada}) }

// Without an observer a 400 or 500 was silent. Now there is one line in ten seconds for each policy and status, and no
// identity in it.
func TestRefusalsAreLogged(t *testing.T) {
	for desc, c := range refusals {
		inBubble(t, desc, func(t *testing.T) {
			if c.policy == nil {
				c.policy = core.PerMinute(9)
			}
			if c.key == (core.Key{}) {
				c.key = byText(ada, nil)
			}
			l := newLimiterBy(t, c.policy, c.key, append(c.opts, core.WithName("api"))...)
			defer l.Close()
			refuse := func(times int) string {
				return logged(t, func() {
					for range times {
						d, err := l.Check(from("203.0.113.9:1", "X-User", ada))
						if p := core.ProblemOf(err); err == nil || p.Status != c.status {
							t.Fatalf("%+v, %v: status %d, want %d", d, err, p.Status, c.status)
						}
					}
				})
			}
			check := func(got string, want ...string) {
				t.Helper()
				if strings.Count(got, "\n") != 1 {
					t.Errorf("logged, instead of one line:\n%s", got)
				}
				for _, want := range append(want, "policy=api", "observers (WithObserver) receive the error itself") {
					if !strings.Contains(got, want) {
						t.Errorf("the log lacks %s:\n%s", want, got)
					}
				}
				noIdentity(t, got)
			}
			got := refuse(1)
			check(got, c.want...)
			if strings.Contains(got, "left out") {
				t.Errorf("nothing was left out:\n%s", got)
			}
			if got := refuse(100); got != "" {
				t.Errorf("again within 10 s:\n%s", got)
			}
			time.Sleep(10*time.Second - 1)
			if got := refuse(1); got != "" {
				t.Errorf("again within 10 s:\n%s", got)
			}
			time.Sleep(time.Nanosecond)
			check(refuse(2), append([]string{`"lines left out"=101`}, c.want...)...)
		})
	}
}

func noIdentity(t *testing.T, text string) {
	t.Helper()
	for _, identity := range []string{ada, "203.0.113.9"} {
		for _, form := range traces(identity) {
			if strings.Contains(strings.ToLower(text), form) {
				t.Errorf("%s is in the log:\n%s", form, text)
			}
		}
	}
}

// Each status has a line of its own, also where another has just had one.
func TestRefusalsByStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var key error
		l := newLimiterBy(t, core.PerMinute(9), core.By(func(context.Context) (string, error) { return ada, key }))
		got := logged(t, func() {
			for range 3 {
				for _, key = range []error{errors.New(ada), core.ErrNoKey} {
					l.Check(from("203.0.113.9:1"))
				}
			}
		})
		for _, want := range []string{"its key function failed", "it has no key"} {
			if strings.Count(got, want) != 1 || strings.Count(got, "\n") != 2 {
				t.Errorf("want %q once among two lines:\n%s", want, got)
			}
		}
		noIdentity(t, got)
	})
}

// What is no fault of the setup has no line, and neither has what its caller is told as an error.
func TestWhatIsNotLogged(t *testing.T) {
	got := logged(t, func() {
		for name, opts := range map[string][]core.Option{"allowed": nil,
			"forbidden": {core.WithDenyList(byText(ada, nil), ada)}} {
			l := newLimiterBy(t, core.PerMinute(2), byText(ada, nil), opts...)
			for range 5 {
				_, err := l.Check(from("203.0.113.9:1"))
				if errors.Is(err, core.ErrForbidden) != (name == "forbidden") {
					t.Error(name, err)
				}
			}
			if _, err := l.Allow(t.Context(), ""); !errors.Is(err, core.ErrNoKey) {
				t.Error(err)
			}
			if _, err := l.AllowN(t.Context(), ada, 0); err == nil {
				t.Error("a cost of 0 passes")
			}
		}
	})
	if got != "" {
		t.Errorf("logged:\n%s", got)
	}
}

// An outage is logged once, by the breaker, and not again as refused requests.
func TestOutageIsLoggedOnce(t *testing.T) {
	text := byText(ada, nil)
	for name, c := range map[string]struct {
		key  core.Key
		err  error
		want []string
	}{
		"of a store that names a class": {text, &core.StoreError{Err: errors.New("dial tcp: connection refused"),
			Class: "refused", Advice: "start it"},
			[]string{"class=refused", `error="dial tcp: connection refused"`, `advice="start it"`}},
		"of one that does not": {text, errors.New("no row for " + ada), []string{"error=*errors.errorString"}},
		"that tells the key": {text, &core.StoreError{Err: errors.New("no row for " + ada), Class: "sql",
			Advice: "see " + ada}, []string{"class=sql", "error=*errors.errorString"}},
		"whose port has the short key in it": {byText("7", nil), &core.StoreError{
			Err: errors.New("dial tcp 127.0.0.1:6379: refused"), Class: "refused", Advice: "start Redis 17",
		},
			[]string{`error="dial tcp 127.0.0.1:6379: refused"`, `advice="start Redis 17"`}},
		"that quotes its address": {core.ByIP(),
			&core.StoreError{Err: errors.New("row 203.0.113.9 locked"), Class: "sql"},
			[]string{"class=sql", "error=*errors.errorString"}},
	} {
		inBubble(t, name, func(t *testing.T) {
			l := newLimiterBy(t, core.PerMinute(9), c.key, failing(c.err)...)
			defer l.Close()
			got := logged(t, func() {
				for range 20 {
					if _, err := l.Check(from("203.0.113.9:1")); core.ProblemOf(err).Status != 503 {
						t.Fatal(err)
					}
					time.Sleep(time.Millisecond)
				}
			})
			if strings.Count(got, "\n") != 1 || !strings.Contains(got, "the store does not answer") {
				t.Errorf("want one line of the outage:\n%s", got)
			}
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("the log lacks %s:\n%s", want, got)
				}
			}
			noIdentity(t, got)
		})
	}
}

// A callback that fails when the request has been served is logged too.
func TestRefundPanicIsLogged(t *testing.T) {
	for name, opts := range map[string][]core.Option{
		"callback": {core.WithRefund(func(context.Context, int) bool { panic(ada) })},
		"observer": {core.WithRefund(func(context.Context, int) bool { return true }),
			core.WithObserver(func(_ context.Context, e core.Event) {
				if e.Outcome == event.Refunded {
					panic(ada)
				}
			})},
	} {
		got := logged(t, func() {
			l := newLimiterBy(t, core.PerMinute(9), byText(ada, nil), opts...)
			for range 3 {
				d, err := l.Check(from("203.0.113.9:1"))
				must(t, err)
				d.Serve(func() int { return 200 })
			}
		})
		if strings.Count(got, "\n") != 1 || !strings.Contains(got, "has panicked") ||
			!strings.Contains(got, "core/refusallog_test.go:") {
			t.Errorf("%s: logged\n%s", name, got)
		}
		noIdentity(t, got)
	}
}

// A handler of slog's that panics must not end the process.
func TestLogThatPanics(t *testing.T) {
	before := slog.Default()
	slog.SetDefault(slog.New(panicHandler{slog.DiscardHandler}))
	defer slog.SetDefault(before)
	l := newLimiterBy(t, core.PerMinute(9), byText("", nil))
	if _, err := l.Check(from("203.0.113.9:1")); !errors.Is(err, core.ErrNoKey) {
		t.Error(err)
	}
}

type panicHandler struct{ slog.Handler }

func (panicHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (panicHandler) Handle(context.Context, slog.Record) error { panic("no disk") }

// Many requests that are refused at the same time have one line, and all others are counted.
func TestRefusalsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiterBy(t, core.PerMinute(9), core.ByIP())
		refuse := func() {
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					for range 100 {
						l.Check(from(""))
					}
				})
			}
			all.Wait()
		}
		first := logged(t, refuse)
		time.Sleep(10 * time.Second)
		second := logged(t, refuse)
		if strings.Count(first, "\n") != 1 || strings.Count(second, "\n") != 1 ||
			!strings.Contains(second, `"lines left out"=799`) {
			t.Errorf("logged\n%s%s", first, second)
		}
	})
}
