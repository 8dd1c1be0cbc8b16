package main

import (
	"strconv"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// path is a kind of requests that scripts decide in one way.
type path struct {
	name    string
	logs    []log
	mode    store.Mode
	share   int  // of what is left, with ModeAtMost
	keys    bool // each log is of a key of its own
	fill    int  // how many requests each log has got before
	units   bool // all of these but the first are of one unit
	settled int  // if not 0, what each request is settled to on its last log, which counts as well
}

// log is a limit on a log, and what a request costs there.
type log struct {
	*store.Limit

	cost int
}

func limit(quota int, window time.Duration) *store.Limit {
	return &store.Limit{Log: window.String(), Quota: quota, Window: window}
}

// of returns a limit on the log of another unit.
func of(unit string, l *store.Limit) *store.Limit {
	l.Log += "." + unit
	return l
}

var (
	wide    = limit(1000, time.Hour)
	half    = limit(500, 30*time.Minute)
	full    = limit(20, time.Hour)
	tokens  = of("tokens", limit(1_000_000, time.Hour))
	pages   = of("pages", limit(1_000_000, time.Hour))
	few     = of("tokens", limit(8000, time.Hour))
	brief   = limit(1_000_000, 600*time.Millisecond)
	leased  = &store.Limit{Log: "1h0m0s", Quota: 1_000_000, Window: time.Hour, Leased: true}
	counter = &store.Limit{Log: "fixed-1h0m0s", Quota: 1000, Window: time.Hour, Algorithm: store.FixedWindow}
)

// one is a request of one log, and two of two.
func one(l *store.Limit, cost int) []log { return []log{{l, cost}} }

func two(a, b *store.Limit, cost int) []log { return []log{{a, cost}, {b, cost}} }

var paths = []path{
	{name: "one limit, admitted", logs: one(wide, 1), fill: 10},
	{name: "one limit, denied", logs: one(full, 1), fill: 20},
	{name: "one limit, entries leave", logs: one(brief, 1), fill: 10},
	{name: "peek", logs: one(wide, 1), mode: store.ModePeek, fill: 10},
	{name: "record", logs: one(wide, 1), mode: store.ModeRecord, fill: 10},
	{name: "denials counted, admitted", logs: one(wide, 1), mode: store.ModeChargeDenied, fill: 10},
	{name: "denials counted, denied", logs: one(full, 1), mode: store.ModeChargeDenied, fill: 20},
	{name: "cost", logs: one(tokens, 500), fill: 10},
	{name: "cost, denied", logs: one(few, 500), fill: 16},
	{name: "cost, peek", logs: one(wide, 3), mode: store.ModePeek, fill: 10},
	{name: "cost, long log", logs: one(tokens, 500), fill: 300},
	{name: "cost, entries leave", logs: one(brief, 2), fill: 10},
	{name: "cost, then settled", logs: one(tokens, 500), fill: 10, settled: 300},
	{name: "at most so many", logs: one(wide, 3), mode: store.ModeAtMost, fill: 10},
	{name: "at most so many, denied", logs: one(full, 3), mode: store.ModeAtMost, fill: 20, units: true},
	{name: "lease, then settled", logs: one(leased, 30), mode: store.ModeAtMost, share: 4, fill: 10, settled: 20},
	{name: "two limits, admitted", logs: two(wide, half, 1), fill: 10},
	{name: "two limits, cost", logs: two(wide, half, 3), fill: 10},
	{name: "two keys, admitted", logs: two(wide, wide, 1), keys: true, fill: 10},
	{name: "two keys, denied", logs: two(wide, full, 1), keys: true, fill: 20},
	{name: "two keys, cost", logs: two(wide, wide, 3), keys: true, fill: 10},
	{name: "a limit and a counter", logs: two(wide, counter, 1), fill: 10},
	{name: "units", logs: []log{{wide, 1}, {tokens, 500}}, fill: 10},
	{name: "units, denied", logs: []log{{wide, 1}, {few, 500}}, fill: 16},
	{name: "units, three", logs: []log{{wide, 1}, {tokens, 500}, {pages, 70}}, fill: 10},
}

// takes returns what a request of an identity takes.
func (p *path) takes(identity int, id uint64, mode store.Mode) []store.Take {
	all := make([]store.Take, len(p.logs))
	for i, l := range p.logs {
		policy := "log"
		if p.keys {
			policy += strconv.Itoa(i)
		}
		key := store.NewKey(policy, strconv.Itoa(identity))
		all[i] = store.Take{Key: key, Limit: l.Limit, Cost: l.cost, ID: id, Mode: mode, Share: p.share}
	}
	return all
}
