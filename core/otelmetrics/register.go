package otelmetrics

import (
	"context"
	"errors"
	"slices"

	"go.opentelemetry.io/otel/metric"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/internal/metricsum"
)

// value is a number of [core.Stats].
type value struct {
	name, unit, description string
	counts                  bool // it never decreases
	of                      func(*core.Stats) int64
	kind                    func(*core.Stats) bool // whether limiters of this store have it
}

func ofAll(*core.Stats) bool      { return true }
func ofMemory(s *core.Stats) bool { return s.MaxKeys > 0 }
func ofGuard(s *core.Stats) bool  { return s.Breaker != "" }
func batched(s *core.Stats) bool  { return s.Batches != nil }

var values = []value{
	{"active_request_leases", "{slot}", "Slots of InFlight that requests of this process hold.", false,
		func(s *core.Stats) int64 { return int64(s.InFlight) }, ofAll},
	{"memory.keys", "{key}", "Keys that have a log of their own.", false,
		func(s *core.Stats) int64 { return int64(s.Keys) }, ofMemory},
	{"memory.max_keys", "{key}", "Keys that can have a log of their own.", false,
		func(s *core.Stats) int64 { return int64(s.MaxKeys) }, ofMemory},
	{"memory.usage", "By", "Memory that the logs use.", false,
		func(s *core.Stats) int64 { return int64(s.Bytes) }, ofMemory},
	{"memory.shared", "{request}", "Requests whose key has shared a log with others.", true,
		func(s *core.Stats) int64 { return int64(s.Shared) }, ofMemory},
	{"store.outages", "{outage}", "How often the store has stopped to answer.", true,
		func(s *core.Stats) int64 { return int64(s.Outages) }, ofGuard},
	{"store.failures", "{call}", "Calls that the store has not answered.", true,
		func(s *core.Stats) int64 { return int64(s.Failures) }, ofGuard},
	{"process.stalled", "ms", "Time in which requests waited and this process could not run.", true,
		func(s *core.Stats) int64 { return s.Stalled.Milliseconds() }, ofGuard},
	{"deny_cache.entries", "{denial}", "Denials that are remembered.", false,
		func(s *core.Stats) int64 { return int64(s.Denials) }, ofGuard},
	{"replay.backlog", "{take}", "Takes that were decided without the store and that it still has to be told.", false,
		func(s *core.Stats) int64 { return s.Backlog }, ofGuard},
	{"replay.replayed", "{take}", "Takes that the store was told after they were decided without it.", true,
		func(s *core.Stats) int64 { return int64(s.Replayed) }, ofGuard},
	{"replay.lost", "{unit}", "Units that were admitted without the store and that it cannot be told.", true,
		func(s *core.Stats) int64 { return int64(s.Lost) }, ofGuard},
	{"store.batched_takes", "{take}", "Takes that were sent to the store, in batches or alone.", true,
		func(s *core.Stats) int64 { return int64(s.Batches.Takes) }, batched},
	{"store.batches", "{batch}", "Batches that were sent to the store.", true,
		func(s *core.Stats) (n int64) {
			for _, size := range s.Batches.Sizes {
				n += int64(size)
			}
			return n
		}, batched},
}

var states = [...]string{"closed", "open", "half open"}

// Register reports [core.Stats] of limiters when metrics are read, until the registration is undone. Register all
// limiters of a program at once: those of one policy are added up, and what is of a store is reported once, for the
// first of the limiters that use it. For a file of rules, give it a limiter that the Limiter method of the rules
// returns.
func Register(m metric.Meter, limiters ...*core.Limiter) (metric.Registration, error) {
	if m == nil {
		return nil, errors.New("otelmetrics: the meter is nil: give it one, such as otel.Meter")
	}
	limiters = slices.Clone(limiters)
	instruments, all := make([]metric.Int64Observable, len(values)), make([]metric.Observable, 0, len(values)+1)
	for i, v := range values {
		var err error
		unit, description := metric.WithUnit(v.unit), metric.WithDescription(v.description)
		if v.counts {
			instruments[i], err = m.Int64ObservableCounter(prefix+v.name, unit, description)
		} else {
			instruments[i], err = m.Int64ObservableUpDownCounter(prefix+v.name, unit, description)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, instruments[i])
	}
	breaker, err := m.Int64ObservableUpDownCounter(prefix+"breaker", metric.WithUnit("1"),
		metric.WithDescription("1 for the state of the breaker: closed while the store is asked."))
	if err != nil {
		return nil, err
	}
	return m.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		for _, s := range metricsum.Of(limiters) {
			of := metric.WithAttributes(attrPolicy.String(s.Policy))
			for i, v := range values {
				if v.kind(s) {
					to.ObserveInt64(instruments[i], v.of(s), of)
				}
			}
			for _, state := range states {
				if n := int64(0); s.Breaker != "" {
					if s.Breaker == state {
						n = 1
					}
					to.ObserveInt64(breaker, n, of, metric.WithAttributes(attrState.String(state)))
				}
			}
		}
		return nil
	}, append(all, breaker)...)
}
