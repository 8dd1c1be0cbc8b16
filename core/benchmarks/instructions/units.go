package main

import (
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Requests and tokens in one decision.
func init() {
	few := plan(store.Plan{}, limit(8000, time.Hour))
	paths = append(paths,
		path{name: "units", plans: []*store.Plan{wide, tokens}, take: take{costs: []int{1, 500}}, fill: 10},
		path{name: "units, denied", plans: []*store.Plan{wide, few}, take: take{costs: []int{1, 500}}, fill: 16},
	)
}
