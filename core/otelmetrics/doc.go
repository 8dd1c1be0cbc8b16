// Package otelmetrics counts the decisions of limiters with OpenTelemetry's API of metrics, and notes them on the spans
// of requests.
//
//	meter := otel.Meter("github.com/sashlimit/sash")
//	limiter, err := core.New(core.PerMinute(100), core.ByIP(),
//		core.WithObserver(otelmetrics.Observer(meter)),
//		core.WithStoreObserver(otelmetrics.StoreObserver(meter)))
//	...
//	registration, err := otelmetrics.Register(meter, limiter)
//
// Experimental: OpenTelemetry has no convention for rate limiters but aspnetcore.rate_limiting, which the names of this
// package resemble. They will change if there is one. docs/metrics.md lists them.
//
// No attribute is an identity, and the number of their values does not depend on clients. What was counted of a policy
// is not reported any more after its last limiter was closed.
package otelmetrics
