package metricsum

import "time"

// Metric is a number that exporters have of each policy.
type Metric struct {
	Counter    bool     // it never decreases
	Prometheus string   // its name, or empty if Prometheus has it in a histogram
	OTel       string   // its name
	Unit       string   // of OTel; in "ms" are 1,000 times a sample's value
	Help       string   // what it is
	Labels     []string // beside the policy, as Prometheus names them
}

// Sample is a value of a metric, in Prometheus' unit.
type Sample struct {
	*Metric

	Policy string
	Labels []string // of the metric's labels
	Value  float64
	Began  time.Time // when it was 0, if it is of events
}

// What histograms are, which exporters make themselves.
const (
	DecisionHelp  = "Time to reach a decision; for Wait, including the wait."
	StoreCallHelp = "Duration of calls to the store, by operation and class of error."
	BatchHelp     = "Takes sent to the store together."
)

// Buckets are the upper bounds of histograms, in seconds.
var Buckets = []float64{1e-6, 1e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1}

func counter(prometheus, otel, unit, help string, labels ...string) *Metric {
	return &Metric{true, prometheus, otel, unit, help, labels}
}

func gauge(prometheus, otel, unit, help string, labels ...string) *Metric {
	return &Metric{false, prometheus, otel, unit, help, labels}
}
