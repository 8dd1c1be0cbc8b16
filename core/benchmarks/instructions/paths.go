package main

import (
	"context"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// decide has a store decide about one request.
func decide(s store.Store, takes []store.Take) error {
	return s.Take(context.Background(), takes, make([]store.Answer, len(takes)))
}

// path is a kind of takes that scripts decide in one way.
type path struct {
	name    string
	plans   []*store.Plan
	take    take
	fill    int  // how many takes each log has got before
	units   bool // whether all of these but the first are of one unit
	settled int  // if not 0, what each take is settled to on its last log, which counts as well
	booked  int  // if not 0, each take books units as well, and settles the booking before to so many
}

type take struct {
	mode  store.Mode
	costs []int // of each log; nil for 1
}

func plan(p store.Plan, limits ...store.Limit) *store.Plan {
	p.Limits = limits
	return store.NewPlan(p)
}

func limit(quota int, window time.Duration) store.Limit {
	return store.Limit{Quota: quota, Window: window}
}

var (
	wide    = plan(store.Plan{}, limit(1000, time.Hour))
	full    = plan(store.Plan{}, limit(20, time.Hour))
	two     = plan(store.Plan{}, limit(1000, time.Hour), limit(500, time.Minute*30))
	tokens  = plan(store.Plan{}, limit(1_000_000, time.Hour))
	varies  = plan(store.Plan{Varies: true, Keep: 2 * time.Hour}, limit(1000, time.Hour))
	shadow  = plan(store.Plan{Shadow: 1}, limit(1000, time.Hour), limit(500, time.Minute*30))
	bounded = plan(store.Plan{Bound: 20}, limit(20, time.Hour))
	window  = plan(store.Plan{}, store.Limit{Quota: 1000, Window: time.Hour, Algorithm: store.FixedWindow})
)

var paths = []path{
	{name: "one limit, admitted", plans: []*store.Plan{wide}, fill: 10},
	{name: "one limit, denied", plans: []*store.Plan{full}, fill: 20},
	{name: "two limits, admitted", plans: []*store.Plan{two}, fill: 10},
	{name: "peek", plans: []*store.Plan{wide}, take: take{mode: store.ModePeek}, fill: 10},
	{name: "cost", plans: []*store.Plan{tokens}, take: take{costs: []int{500}}, fill: 10},
	{name: "cost, two limits", plans: []*store.Plan{two}, take: take{costs: []int{3}}, fill: 10},
	{name: "cost, peek", plans: []*store.Plan{wide}, take: take{store.ModePeek, []int{3}}, fill: 10},
	{name: "at most so many", plans: []*store.Plan{wide}, take: take{store.ModeUpTo, []int{3}}, fill: 10},
	{name: "at most so many, denied", plans: []*store.Plan{full}, take: take{store.ModeUpTo, []int{3}}, fill: 20,
		units: true},
	{name: "record", plans: []*store.Plan{wide}, take: take{mode: store.ModeRecord}, fill: 10},
	{name: "denials counted, admitted", plans: []*store.Plan{wide}, take: take{mode: store.ModeChargeDenied}, fill: 10},
	{
		name:  "denials counted, denied",
		plans: []*store.Plan{bounded},
		take:  take{mode: store.ModeChargeDenied},
		fill:  20,
	},
	{name: "shadow", plans: []*store.Plan{shadow}, fill: 10},
	{name: "varied", plans: []*store.Plan{varies}, fill: 10},
	{name: "joint", plans: []*store.Plan{wide, wide}, fill: 10},
	{name: "joint, denied", plans: []*store.Plan{wide, full}, fill: 20},
	{name: "joint, several limits", plans: []*store.Plan{wide, two}, fill: 10},
	{name: "joint, varied", plans: []*store.Plan{wide, varies}, fill: 10},
	{name: "joint, cost", plans: []*store.Plan{wide, tokens}, take: take{costs: []int{3, 3}}, fill: 10},
	{name: "joint, counter", plans: []*store.Plan{wide, window}, fill: 10},
}
