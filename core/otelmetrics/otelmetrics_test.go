package otelmetrics_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/otelmetrics"
	"github.com/sashlimit/sash/core/store"
	"github.com/sashlimit/sash/nethttp"
)

// newMeter returns a meter and a function that returns a line for each number that it has.
func newMeter(t *testing.T) (m metric.Meter, lines func() []string) {
	reader := sdkmetric.NewManualReader()
	m = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")
	return m, func() (all []string) {
		t.Helper()
		var got metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &got); err != nil {
			t.Fatal(err)
		}
		add := func(name string, attrs attribute.Set, n any) {
			var of []string
			for _, a := range attrs.ToSlice() {
				of = append(of, a.Value.Emit())
			}
			name = strings.TrimPrefix(name, "sash.rate_limiting.")
			all = append(all, fmt.Sprintf("%s(%s) %v", name, strings.Join(of, ","), n))
		}
		for _, scope := range got.ScopeMetrics {
			for _, m := range scope.Metrics {
				switch data := m.Data.(type) {
				case metricdata.Sum[int64]:
					for _, p := range data.DataPoints {
						add(m.Name, p.Attributes, p.Value)
					}
				case metricdata.Histogram[float64]:
					for _, p := range data.DataPoints {
						add(m.Name, p.Attributes, p.Count)
					}
				default:
					t.Errorf("%s is a %T", m.Name, m.Data)
				}
			}
		}
		slices.Sort(all)
		return all
	}
}

func same(t *testing.T, got []string, want string) {
	t.Helper()
	if text := strings.Join(got, "\n"); text != strings.TrimSpace(want) {
		t.Errorf("got\n%s\nwant\n%s", text, strings.TrimSpace(want))
	}
}

func newLimiter(t testing.TB, m metric.Meter, p core.Policy, k core.Key, opts ...core.Option) *core.Limiter {
	t.Helper()
	l, err := core.New(p, k, append(opts, core.WithObserver(otelmetrics.Observer(m)),
		core.WithStoreObserver(otelmetrics.StoreObserver(m)))...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestMetrics(t *testing.T) {
	m, lines := newMeter(t)
	l := newLimiter(t, m, core.PerHour(5), core.ByText(), core.WithName("a"), core.WithShadow(core.PerHour(3)))
	again := newLimiter(t, m, core.PerHour(1), core.ByText(), core.WithName("b"), core.WithOverrides())
	if _, err := otelmetrics.Register(m, l, again); err != nil {
		t.Fatal(err)
	}
	for range 7 {
		if _, err := l.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := again.AllowN(t.Context(), "k", 0); err == nil {
		t.Error("a cost of 0 is no error")
	}
	o := core.Override{Unlimited: true, Until: time.Now().Add(time.Hour), Note: "ident"}
	if err := again.Override(t.Context(), "ident7", o); err != nil {
		t.Fatal(err)
	}
	if _, err := again.Allow(t.Context(), "ident7"); err != nil {
		t.Fatal(err)
	}
	l.Inside().Reloaded(t.Context(), nil)
	got := lines()
	got = slices.DeleteFunc(got, func(line string) bool { return strings.HasPrefix(line, "memory.usage") })
	same(t, got, `
degraded(a) 0
degraded(b) 0
errors(config,b) 1
memory.keys(a) 2
memory.keys(b) 1
memory.max_keys(a) 262144
memory.max_keys(b) 262144
memory.shared(a) 0
memory.shared(b) 0
near_limit(a) 1
near_limit(b) 0
override_requests(unlimited,b,allowed) 1
overrides(b) 1
permits_in_flight(a) 0
permits_in_flight(b) 0
request.duration(memory) 8
request.duration(none) 1
requests(a,allowed,memory) 5
requests(a,denied,memory) 2
requests(b,allowed,memory) 1
requests(b,failed,none) 1
rules.reloads(a,ok) 1
shadow_requests(a,allowed) 3
shadow_requests(a,denied) 4
shadow_requests(b,allowed) 0
shadow_requests(b,denied) 0`)
}

func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, lines := newMeter(t)
		s := new(coretest.FakeStore)
		l := newLimiter(t, m, core.PerHour(5), core.ByText(), core.WithName("a"), core.WithStore(s))
		defer l.Close()
		registration, err := otelmetrics.Register(m, l)
		if err != nil {
			t.Fatal(err)
		}
		s.Fail(&store.StoreError{Err: errors.New("x"), Class: "refused"})
		for range 6 {
			time.Sleep(time.Millisecond)
			if _, err := l.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		same(t, lines(), `
breaker(closed,a) 0
breaker(open,a) 1
degraded(a) 6
deny_cache.entries(a) 0
errors(refused,a) 6
near_limit(a) 1
permits_in_flight(a) 0
replay.backlog(a) 5
replay.lost(a) 0
replay.replayed(a) 0
request.duration(local) 6
requests(a,allowed,local) 5
requests(a,denied,local) 1
shadow_requests(a,allowed) 0
shadow_requests(a,denied) 0
store.call.duration(refused,merge) 4
store.call.duration(refused,take) 1
store.failures(a) 5
store.outages(a) 1`)
		if err := registration.Unregister(); err != nil {
			t.Fatal(err)
		}
		s.Fail(nil)
	})
}

// The span of a request has what was decided, and no identity. A request without one is no trouble.
func TestSpans(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
	m, _ := newMeter(t)
	l := newLimiter(t, m, core.PerHour(1), core.ByHeader("X-API-Key", core.Unverified), core.WithName("api"),
		core.WithOverrides())
	unlimited := core.Override{Unlimited: true, Until: time.Now().Add(time.Hour)}
	if err := l.Override(t.Context(), "ident8", unlimited); err != nil {
		t.Fatal(err)
	}
	h := nethttp.From(l)(http.NotFoundHandler())
	for _, key := range []string{"ident7", "ident7", "", "ident8"} {
		ctx, span := tracer.Start(t.Context(), "request")
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		if key != "" {
			r.Header.Set("X-Api-Key", key)
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
		span.End()
	}
	var got []string
	for _, span := range spans.Ended() {
		var attrs []string
		for _, a := range span.Attributes() {
			value := a.Value.Emit()
			if a.Value.Type() == attribute.FLOAT64 {
				value = fmt.Sprint(a.Value.AsFloat64() > 3590 && a.Value.AsFloat64() <= 3600)
			}
			attrs = append(attrs, strings.TrimPrefix(string(a.Key), "sash.rate_limiting.")+"="+value)
		}
		got = append(got, strings.Join(attrs, " "))
	}
	same(t, got, `
policy=api result=allowed source=memory remaining=0
policy=api result=denied source=memory remaining=0 retry_after=true
policy=api result=no key source=none
policy=api result=allowed source=memory override=unlimited`)
}

func TestMistakes(t *testing.T) {
	if _, err := otelmetrics.Register(nil); err == nil {
		t.Error("a nil meter is no error")
	}
	for name, f := range map[string]func(){
		"Observer":      func() { otelmetrics.Observer(nil) },
		"StoreObserver": func() { otelmetrics.StoreObserver(nil) },
		"a refusal":     func() { otelmetrics.Observer(refusing{}) },
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.HasPrefix(text, "otelmetrics: ") {
					t.Errorf("%s: panic %q", name, text)
				}
			}()
			f()
		}()
	}
	if _, err := otelmetrics.Register(refusing{}); err == nil {
		t.Error("a meter that refuses is no error")
	}
}

// refusing is a meter that makes no counters.
type refusing struct{ noop.Meter }

var errRefused = errors.New("no")

func (refusing) Int64ObservableCounter(
	string, ...metric.Int64ObservableCounterOption,
) (metric.Int64ObservableCounter, error) {
	return nil, errRefused
}

func (refusing) Int64ObservableUpDownCounter(
	string, ...metric.Int64ObservableUpDownCounterOption,
) (metric.Int64ObservableUpDownCounter, error) {
	return nil, errRefused
}

// What this package does for a decision allocates nothing.
func TestObserverAllocates(t *testing.T) {
	var last core.Event
	l, err := core.New(core.PerHour(1_000_000), core.ByText(),
		core.WithObserver(func(_ context.Context, e core.Event) { last = e }))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Allow(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if last.Outcome != event.Allowed {
		t.Fatal(last)
	}
	observe, ctx := otelmetrics.Observer(noop.Meter{}), t.Context()
	observe(ctx, last)
	if n := testing.AllocsPerRun(1000, func() { observe(ctx, last) }); n != 0 {
		t.Errorf("%v allocations for an event", n)
	}
}

// What was counted stays until it is forgotten, whether limiters share an observer or a meter.
func TestForget(t *testing.T) {
	m, lines := newMeter(t)
	ask := func() {
		l := newLimiter(t, m, core.PerHour(2), core.ByText(), core.WithName("a"))
		for range 3 {
			if _, err := l.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
	}
	counted := func() []string {
		return slices.DeleteFunc(lines(), func(line string) bool { return strings.HasPrefix(line, "request.duration") })
	}
	const each = `degraded(a) 0
near_limit(a) %[1]d
requests(a,allowed,memory) %[2]d
requests(a,denied,memory) %[1]d
shadow_requests(a,allowed) 0
shadow_requests(a,denied) 0`
	ask()
	ask()
	same(t, counted(), fmt.Sprintf(each, 2, 4))
	otelmetrics.Forget(m, "a")
	same(t, counted(), "")
	ask()
	same(t, counted(), fmt.Sprintf(each, 1, 2))
}
