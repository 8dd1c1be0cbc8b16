// Package metricsum has the metrics of limiters for packages that export them: it counts events by policy, adds up what
// limiters hold, and names and describes each metric.
package metricsum

// Metric is a number that exporters have of each policy.
type Metric struct {
	Counter    bool   // it never decreases
	Prometheus string // its name
	OTel       string // its name
	Unit       string // of OTel
	Help       string // what it is
	Labels     string // beside the policy, as Prometheus names them, with spaces between them
}

// Sample is a value of a metric.
type Sample struct {
	Metric

	Policy string
	Values []string // of the labels
	Value  float64
}

// Source has metrics: [Events] and [Limiters].
type Source interface {
	Metrics() []Metric
	Report(yield func(Sample)) // with the value of each metric
}

// What histograms are, which exporters make themselves.
const (
	DecisionHelp  = "Time to reach a decision; for Wait, including the wait."
	StoreCallHelp = "Duration of calls to the store, by operation and class of error."
)

// Buckets are the upper bounds of histograms, in seconds.
var Buckets = []float64{1e-6, 1e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1}
