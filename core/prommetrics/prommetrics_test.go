package prommetrics_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/prommetrics"
	"github.com/sashlimit/sash/core/store"
	"github.com/sashlimit/sash/nethttp"
)

// newLimiter makes a limiter that is counted.
func newLimiter(t testing.TB, r prometheus.Registerer, p core.Policy, k core.Key, opts ...core.Option) *core.Limiter {
	t.Helper()
	l, err := core.New(p, k, append(opts, core.WithObserver(prommetrics.Observer(r)),
		core.WithStoreObserver(prommetrics.StoreObserver(r)))...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// has compares the values of metrics, without their help.
func has(t *testing.T, r prometheus.Gatherer, want string, names ...string) {
	t.Helper()
	var got []string
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, name := range names {
			if f.GetName() != name {
				continue
			}
			for _, m := range f.GetMetric() {
				var labels []string
				for _, l := range m.GetLabel() {
					labels = append(labels, l.GetValue())
				}
				value := m.GetCounter().GetValue() + m.GetGauge().GetValue() +
					float64(m.GetHistogram().GetSampleCount())
				got = append(got, fmt.Sprintf("%s(%s) %v", strings.TrimPrefix(name, "sash_"),
					strings.Join(labels, ","), value))
			}
		}
	}
	if text := strings.Join(got, "\n"); text != strings.TrimSpace(want) {
		t.Errorf("got\n%s\nwant\n%s", text, strings.TrimSpace(want))
	}
}

func TestDecisions(t *testing.T) {
	r := prometheus.NewRegistry()
	l := newLimiter(t, r, core.PerHour(5), core.ByHeader("X-API-Key", core.Unverified),
		core.WithName("api"), core.WithShadow(core.PerHour(3)),
		core.WithSkip(func(q *http.Request) bool { return q.URL.Path == "/healthz" }),
		core.WithRefund(func(_ *http.Request, status int) bool { return status == http.StatusNotModified }),
		core.WithDenyList(core.ByHeader("X-API-Key", core.Unverified), "bad"))
	h := nethttp.From(l)(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/same" {
			w.WriteHeader(http.StatusNotModified)
		}
	}))
	ask := func(path, key string) {
		q := httptest.NewRequest(http.MethodGet, path, nil)
		if key != "" {
			q.Header.Set("X-Api-Key", key)
		}
		h.ServeHTTP(httptest.NewRecorder(), q)
	}
	for range 7 {
		ask("/", "a")
	}
	ask("/healthz", "a")
	ask("/same", "b")
	ask("/", "")
	ask("/", "bad")
	for _, err := range []error{nil, errors.New("x"), errors.New("x")} {
		l.Inside().Reloaded(t.Context(), err)
	}
	has(t, r, `
decisions_total(allowed,api,memory) 6
decisions_total(denied,api,memory) 2
decisions_total(forbidden,api,none) 1
decisions_total(no key,api,none) 1
decisions_total(skipped,api,none) 1
degraded_decisions_total(api) 0
near_limit_total(api) 1
refunds_total(api,ok) 1
rules_reloads_total(api,failed) 2
rules_reloads_total(api,ok) 1
shadow_decisions_total(allowed,api) 4
shadow_decisions_total(denied,api) 4`, "sash_decisions_total", "sash_near_limit_total", "sash_refunds_total",
		"sash_degraded_decisions_total", "sash_shadow_decisions_total", "sash_errors_total", "sash_rules_reloads_total")
	has(t, r, `
decision_duration_seconds(cache) 0
decision_duration_seconds(lease) 0
decision_duration_seconds(local) 0
decision_duration_seconds(memory) 8
decision_duration_seconds(none) 3
decision_duration_seconds(store) 0`, "sash_decision_duration_seconds")
}

// What is wrong is counted by its class, and a store's calls by what was asked.
func TestErrorsAndOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		s := new(coretest.FakeStore)
		l := newLimiter(t, r, core.PerHour(100), core.ByText(), core.WithStore(s), core.WithName("p"))
		defer l.Close()
		r.MustRegister(prommetrics.Collector(l))
		allow := func() {
			t.Helper()
			if _, err := l.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		allow()
		s.Fail(&store.StoreError{Err: errors.New("x"), Class: "refused"})
		for range 6 {
			time.Sleep(time.Millisecond)
			allow()
		}
		if _, err := l.AllowN(t.Context(), "k", 0); err == nil {
			t.Error("a cost of 0 is no error")
		}
		names := []string{
			"sash_decisions_total", "sash_errors_total", "sash_degraded_decisions_total", "sash_breaker_state",
			"sash_outages_total", "sash_store_failures_total", "sash_replay_backlog", "sash_replayed_total",
			"sash_store_call_duration_seconds",
		}
		has(t, r, `
breaker_state(p,closed) 0
breaker_state(p,open) 1
decisions_total(allowed,p,local) 6
decisions_total(allowed,p,store) 1
decisions_total(failed,p,none) 1
degraded_decisions_total(p) 6
errors_total(config,p) 1
errors_total(refused,p) 6
outages_total(p) 1
replay_backlog(p) 6
replayed_total(p) 0
store_call_duration_seconds(ok,take) 1
store_call_duration_seconds(refused,merge) 4
store_call_duration_seconds(refused,take) 1
store_failures_total(p) 5`, names...)
		s.Fail(nil)
		for range 10 {
			time.Sleep(time.Second)
			synctest.Wait()
		}
		has(t, r, `
breaker_state(p,closed) 1
breaker_state(p,open) 0
outages_total(p) 1
replay_backlog(p) 0
replayed_total(p) 6`, "sash_breaker_state", "sash_outages_total", "sash_replay_backlog", "sash_replayed_total")
	})
}

// Overrides in force are a number of the policy; decisions under them have the kind of the override and the outcome.
func TestOverrides(t *testing.T) {
	r := prometheus.NewRegistry()
	s := core.NewMemoryStore()
	limiters := make([]*core.Limiter, 3)
	for i, name := range []string{"p", "p", "without"} {
		limiters[i] = newLimiter(t, r, core.PerHour(1), core.ByText(), core.WithName(name), core.WithStore(s),
			core.WithOverrides())
	}
	r.MustRegister(prommetrics.Collector(limiters...))
	allow := func(limiter int, key string) {
		t.Helper()
		if _, err := limiters[limiter].Allow(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	for key, o := range map[string]core.Override{
		"denied": {Denied: true}, "unlimited": {Unlimited: true}, "limits": {Limits: core.Limits{core.PerHour(2)}},
	} {
		o.Until = time.Now().Add(time.Hour)
		if err := limiters[0].Override(t.Context(), key, o); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			allow(0, key)
		}
	}
	allow(1, "denied")
	allow(2, "denied")
	has(t, r, `
override_decisions_total(allowed,limits,p) 2
override_decisions_total(allowed,unlimited,p) 3
override_decisions_total(denied,denied,p) 4
override_decisions_total(denied,limits,p) 1
overrides(p) 3`, "sash_override_decisions_total", "sash_overrides")
}

// The leases of all limiters of a policy are added up, and what they have left.
func TestLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		s := new(coretest.FakeStore)
		var limiters []*core.Limiter
		left := 0
		for range 2 {
			l := newLimiter(t, r, core.PerHour(10_000), core.ByText(), core.WithName("p"), core.WithStore(s),
				core.WithLease(time.Second))
			defer l.Close()
			for range 50 {
				if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
			}
			limiters, left = append(limiters, l), left+l.Stats().Booked
		}
		r.MustRegister(prommetrics.Collector(limiters...))
		has(t, r, fmt.Sprintf("\nleased_units(p) %d\nleases(p) 2", left), "sash_leases", "sash_leased_units")
	})
}

// Several limiters share metrics, those of one policy are added up, and a store that they share is reported once.
func TestCollector(t *testing.T) {
	r := prometheus.NewRegistry()
	shared := core.NewMemoryStore(core.WithMaxKeys(10))
	jobs := core.Limits{core.PerHour(10), core.InFlight(5)}
	a := newLimiter(t, r, jobs, core.ByText(), core.WithName("a"), core.WithStore(shared))
	b := newLimiter(t, r, core.PerHour(10), core.ByText(), core.WithName("b"), core.WithStore(shared))
	own := newLimiter(t, r, jobs, core.ByText(), core.WithName("a"))
	r.MustRegister(prommetrics.Collector(a, b, own, a, nil))
	for _, l := range []*core.Limiter{a, b, own} {
		if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}
	has(t, r, `
memory_keys(a) 3
memory_max_keys(a) 262154
memory_shared_total(a) 0
permits_in_flight(a) 2
permits_in_flight(b) 0`, "sash_memory_keys", "sash_memory_max_keys", "sash_memory_shared_total",
		"sash_permits_in_flight", "sash_breaker_state")
	if n := testutil.CollectAndCount(prommetrics.Collector(a, b, own)); n != 6 {
		t.Errorf("%d series, want 6", n)
	}
}

// The number of series does not depend on how many keys there are, and no identity is told.
func TestSeriesAreBounded(t *testing.T) {
	r := prometheus.NewRegistry()
	l := newLimiter(t, r, core.PerHour(2), core.ByText(), core.WithName("api"), core.WithStore(new(coretest.FakeStore)))
	r.MustRegister(prommetrics.Collector(l))
	before := 0
	for _, n := range []int{10, 10, 2000} { // after the second time there are denials that are remembered
		for i := range 7 * n {
			key := fmt.Sprint("ident", i/4%n)
			if i%2 == 0 {
				key += fmt.Sprint("-", rand.Uint64())
			}
			if _, err := l.Allow(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		series, text := 0, ""
		for _, f := range families {
			series += len(f.GetMetric())
			text += f.String()
		}
		if strings.Contains(text, "ident") || n == 2000 && series != before {
			t.Errorf("%d series after %d keys, %d before: %.300s", series, n, before, text)
		}
		before = series
	}
}

// Classes that a store makes up are bounded as well.
func TestClassesAreBounded(t *testing.T) {
	r := prometheus.NewRegistry()
	observe, observeStore := prommetrics.Observer(r), prommetrics.StoreObserver(r)
	for i := range 10_000 {
		for _, class := range []string{fmt.Sprint("c", i), fmt.Sprint("Of 192.0.2.", i), strings.Repeat("x", 100), ""} {
			err := &store.StoreError{Err: errors.New("x"), Class: class}
			observe(t.Context(), core.Event{Policy: "p", Outcome: event.Failed, Err: err})
			observeStore(t.Context(), event.StoreCall{Err: err})
		}
	}
	for _, name := range []string{"sash_errors_total", "sash_store_call_duration_seconds"} {
		if n, err := testutil.GatherAndCount(r, name); err != nil || n != 65 {
			t.Errorf("%s: %d series, %v; want 65", name, n, err)
		}
	}
}

// Observers of one registerer have the same metrics. If they cannot be registered, the panic says what to do.
func TestRegistering(t *testing.T) {
	r, within := prometheus.NewRegistry(), prometheus.NewRegistry()
	wrapped := func() prometheus.Registerer {
		return prometheus.WrapRegistererWith(prometheus.Labels{"service": "x"}, within)
	}
	for _, registerer := range []prometheus.Registerer{r, r, wrapped(), wrapped()} {
		prommetrics.Observer(registerer)(t.Context(), core.Event{Policy: "p"})
		prommetrics.StoreObserver(registerer)
	}
	has(t, r, "decisions_total(allowed,p,none) 2", "sash_decisions_total")
	has(t, within, "decisions_total(allowed,p,x,none) 2", "sash_decisions_total")
	other := prometheus.NewRegistry()
	//nolint:promlinter // it is a wrong one
	other.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "sash_decisions_total", Help: "Another."}))
	for name, registerer := range map[string]prometheus.Registerer{"another metric": other, "nil": nil} {
		func() {
			defer func() {
				text := fmt.Sprint(recover())
				if !strings.HasPrefix(text, "prommetrics: ") {
					t.Errorf("%s: panic %q", name, text)
				}
			}()
			prommetrics.Observer(registerer)
		}()
	}
}

func TestWithBuckets(t *testing.T) {
	r := prometheus.NewRegistry()
	prommetrics.StoreObserver(r, prommetrics.WithBuckets(0.5, 2), nil)(t.Context(), event.StoreCall{Took: time.Second})
	families, err := r.Gather()
	if err != nil || len(families) != 1 {
		t.Fatal(families, err)
	}
	if b := families[0].GetMetric()[0].GetHistogram().GetBucket(); len(b) != 2 || b[0].GetCumulativeCount() != 0 ||
		b[1].GetCumulativeCount() != 1 {
		t.Errorf("buckets %v", b)
	}
}

// Names and help are as Prometheus recommends, and scrapes disturb no decision and find no race.
func TestScrapesUnderLoad(t *testing.T) {
	r := prometheus.NewRegistry()
	l := newLimiter(t, r, core.PerHour(10), core.ByText(), core.WithName("api"))
	r.MustRegister(prommetrics.Collector(l))
	server := httptest.NewServer(promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
	defer server.Close()
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 2000 {
				if _, err := l.Allow(t.Context(), fmt.Sprint(i%(100+g))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 20 {
		response, err := http.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		if response.Body.Close(); response.StatusCode != http.StatusOK {
			t.Fatal(response.Status)
		}
	}
	all.Wait()
	problems, err := testutil.GatherAndLint(r)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// Counting a decision allocates nothing.
func TestObserverAllocates(t *testing.T) {
	observe, ctx := prommetrics.Observer(prometheus.NewRegistry()), t.Context()
	counted, err := core.New(core.PerHour(1_000_000), core.ByText(), core.WithObserver(observe))
	if err != nil {
		t.Fatal(err)
	}
	counted.Allow(ctx, "k")
	if n := testing.AllocsPerRun(1000, func() { counted.Allow(ctx, "k") }); n != 0 {
		t.Errorf("%v allocations for a decision that is counted", n)
	}
}

// tenant makes a limiter that is counted, and has it decide.
func tenant(t testing.TB, r prometheus.Registerer) *core.Limiter {
	t.Helper()
	l := newLimiter(t, r, core.PerHour(2), core.ByText(), core.WithName("a"))
	for range 3 {
		if _, err := l.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// What was counted stays until it is forgotten. What limiters hold goes with the last of a policy.
func TestForget(t *testing.T) {
	r := prometheus.NewRegistry()
	names := []string{"sash_decisions_total", "sash_near_limit_total", "sash_permits_in_flight"}
	a, b := tenant(t, r), tenant(t, r)
	collector := prommetrics.Collector(a, b)
	r.MustRegister(collector)
	const counted = `
decisions_total(allowed,a,memory) %[1]d
decisions_total(denied,a,memory) %[2]d
near_limit_total(a) %[2]d`
	a.Close()
	a.Close()
	has(t, r, fmt.Sprintf(counted, 4, 2)+"\npermits_in_flight(a) 0", names...)
	b.Close()
	has(t, r, fmt.Sprintf(counted, 4, 2), names...)
	prommetrics.Forget(r, "a")
	prommetrics.Forget(r, "unknown")
	has(t, r, "", names...)
	tenant(t, r)
	has(t, r, fmt.Sprintf(counted, 2, 1), names...)
}

// A collector does not keep limiters that are closed.
func TestClosedLimitersAreCollected(t *testing.T) {
	r := prometheus.NewRegistry()
	l := tenant(t, r)
	gone := make(chan struct{})
	runtime.AddCleanup(l, func(struct{}) { close(gone) }, struct{}{})
	c := prommetrics.Collector(l)
	l.Close()
	if n := testutil.CollectAndCount(c); n != 0 {
		t.Errorf("%d series of a closed limiter", n)
	}
	for range 100 {
		runtime.GC()
		select {
		case <-gone:
			runtime.KeepAlive(c)
			return
		default:
			runtime.Gosched()
		}
	}
	t.Error("the collector keeps the limiter")
}
