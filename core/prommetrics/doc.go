// Package prommetrics counts the decisions of limiters for Prometheus.
//
//	limiter, err := core.New(core.PerMinute(100), core.ByIP(),
//		core.WithObserver(prommetrics.Observer(prometheus.DefaultRegisterer)),
//		core.WithStoreObserver(prommetrics.StoreObserver(prometheus.DefaultRegisterer)))
//	...
//	prometheus.MustRegister(prommetrics.Collector(limiter))
//
// [Observer] counts events, [StoreObserver] measures calls to the store, and [Collector] reports what limiters hold
// when Prometheus scrapes. docs/metrics.md describes each metric, and examples/metrics has a dashboard and alerts.
//
// No label is an identity. Labels are names of policies, which come from the program or its rules, fixed words such as
// outcomes, and classes of errors, at most 64 besides "other". So the number of series does not depend on clients. The
// series of a policy are dropped when its last limiter is closed.
package prommetrics
