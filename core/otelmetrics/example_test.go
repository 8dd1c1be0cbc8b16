package otelmetrics_test

import (
	"context"
	"fmt"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/otelmetrics"
)

// The meter is that of the program. Here it is read by hand.
func Example() {
	reader := sdkmetric.NewManualReader()
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("example")
	limiter, err := core.New(core.PerHour(3), core.ByText(), core.WithName("newsletter"),
		core.WithObserver(otelmetrics.Observer(meter)))
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 5 {
		if _, err := limiter.Allow(context.Background(), "customer 7"); err != nil {
			fmt.Println(err)
			return
		}
	}
	var got metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &got); err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range got.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "sash.rate_limiting.requests" {
			total := int64(0)
			for _, p := range sum.DataPoints {
				total += p.Value
			}
			fmt.Println(m.Name, total)
		}
	}
	// Output: sash.rate_limiting.requests 5
}
