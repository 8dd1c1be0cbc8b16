// Package otelmetrics counts the decisions of limiters with OpenTelemetry's API of metrics, and sets them as attributes
// of the spans of requests.
//
//	meter := otel.Meter("github.com/sashlimit/sash")
//	limiter, err := core.New(core.PerMinute(100), core.ByIP(),
//		core.WithObserver(otelmetrics.Observer(meter)),
//		core.WithStoreObserver(otelmetrics.StoreObserver(meter)))
//	...
//	registration, err := otelmetrics.Register(meter, limiter)
//
// Experimental: OpenTelemetry has no general convention for rate limiters yet. The names of this package resemble
// aspnetcore.rate_limiting, and will change if there is a convention. docs/metrics.md lists them.
//
// No attribute is an identity, and the number of their values does not depend on clients. A policy is no longer
// reported when its last limiter is closed.
package otelmetrics
