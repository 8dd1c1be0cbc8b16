// Package prommetrics counts the decisions of limiters for Prometheus.
//
//	limiter, err := core.New(core.PerMinute(100), core.ByIP(),
//		core.WithObserver(prommetrics.Observer(prometheus.DefaultRegisterer)),
//		core.WithStoreObserver(prommetrics.StoreObserver(prometheus.DefaultRegisterer)))
//	...
//	prometheus.MustRegister(prommetrics.Collector(limiter))
//
// [Observer] counts what events tell, [StoreObserver] how long the store takes, and [Collector] reports what limiters
// hold when Prometheus asks. docs/metrics.md describes each metric, and examples/metrics has a dashboard and alerts.
//
// No label is an identity. Labels are names of policies, which are in the program or its rules, words of sash such as
// outcomes, and classes of errors, of which there are 64 at most besides "other". So the number of series does not
// depend on clients. The series of a policy are dropped when its last limiter is closed.
package prommetrics
