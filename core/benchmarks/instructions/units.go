package main

import (
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Requests and tokens in one decision.
func init() {
	few := plan(store.Plan{}, limit(8000, time.Hour))
	brief := plan(store.Plan{}, limit(1_000_000, 600*time.Millisecond))
	paths = append(
		paths,
		path{name: "units", plans: []*store.Plan{wide, tokens}, take: take{costs: []int{1, 500}}, fill: 10},
		path{name: "units, denied", plans: []*store.Plan{wide, few}, take: take{costs: []int{1, 500}}, fill: 16},
		path{
			name:  "units, three",
			plans: []*store.Plan{wide, tokens, tokens},
			take:  take{costs: []int{1, 500, 70}},
			fill:  10,
		},
		path{name: "cost, denied", plans: []*store.Plan{few}, take: take{costs: []int{500}}, fill: 16},
		path{
			name:    "cost, then settled",
			plans:   []*store.Plan{tokens},
			take:    take{costs: []int{500}},
			fill:    10,
			settled: 300,
		},
		path{name: "cost, long log", plans: []*store.Plan{tokens}, take: take{costs: []int{500}}, fill: 300},
		path{name: "cost, entries leave", plans: []*store.Plan{brief}, take: take{costs: []int{2}}, fill: 10},
		path{name: "one limit, entries leave", plans: []*store.Plan{brief}, fill: 10},
		path{name: "take and booking", plans: []*store.Plan{tokens}, fill: 10, booked: 20},
		path{name: "take and booking, long log", plans: []*store.Plan{tokens}, fill: 150, booked: 20},
		path{name: "take and booking, entries leave", plans: []*store.Plan{brief}, fill: 10, booked: 20},
	)
}
