package prommetrics_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/prommetrics"
)

// A limiter is counted as soon as it has the observer. The collector reports what it holds.
func Example() {
	registry := prometheus.NewRegistry()
	limiter, err := core.New(core.PerHour(3), core.ByText(), core.WithName("newsletter"),
		core.WithObserver(prommetrics.Observer(registry)),
		core.WithStoreObserver(prommetrics.StoreObserver(registry)))
	if err != nil {
		fmt.Println(err)
		return
	}
	registry.MustRegister(prommetrics.Collector(limiter))
	for range 4 {
		if _, err := limiter.Allow(context.Background(), "customer 7"); err != nil {
			fmt.Println(err)
			return
		}
	}
	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range families {
		switch f.GetName() {
		case "sash_decisions_total", "sash_near_limit_total":
			for _, m := range f.GetMetric() {
				for _, label := range m.GetLabel() {
					fmt.Printf("%s=%s ", label.GetName(), label.GetValue())
				}
				fmt.Println(f.GetName(), m.GetCounter().GetValue())
			}
		}
	}
	// Output:
	// outcome=allowed policy=newsletter source=memory sash_decisions_total 3
	// outcome=denied policy=newsletter source=memory sash_decisions_total 1
	// policy=newsletter sash_near_limit_total 1
}
