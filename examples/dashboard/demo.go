package main

import (
	"context"
	"log"
	"sync"
	"time"

	"github.com/sashlimit/sash/core"
)

const (
	quota   = 10
	window  = 10 * time.Second
	history = 3 * window // that the page shows
)

// demo sends the same requests to limiters with the same limit and different algorithms.
type demo struct {
	lanes []*lane

	mu   sync.Mutex
	sent trafficMessage // with the latest traffic
	at   time.Time      // when that began
}

// lane is a limiter and what it has decided.
type lane struct {
	name    string
	limiter *core.Limiter

	mu        sync.Mutex
	decisions []decision
}

type decision struct {
	at      time.Time
	allowed bool
}

func newDemo(observe func(context.Context, core.Event)) (*demo, error) {
	limit := core.Limit{Quota: quota, Window: window}
	d := new(demo)
	for _, l := range []struct {
		name  string
		limit core.Limit
	}{
		{"sliding-log", limit},
		{"fixed-window", limit.With(core.FixedWindow)},
		{"sliding-counter", limit.With(core.SlidingCounter)},
		{"token-bucket", core.TokenBucket(core.PerSecond(1), quota)},
	} {
		limiter, err := core.New(l.limit, core.ByText(), core.WithName(l.name), core.WithObserver(observe),
			core.WithOverrides())
		if err != nil {
			return nil, err
		}
		d.lanes = append(d.lanes, &lane{name: l.name, limiter: limiter})
	}
	return d, nil
}

// traffic are the kinds of traffic that the buttons start.
var traffic = map[string]func(*demo){
	"steady": func(d *demo) { d.send(20, time.Second/2) },
	"burst":  func(d *demo) { d.send(30, 0) },
	"flood":  func(d *demo) { d.send(250, time.Second/50) },
	"edge":   func(d *demo) { d.edge() },
}

// start starts traffic of a kind, unless there is no such kind.
func (d *demo) start(kind string) bool {
	send, ok := traffic[kind]
	if !ok {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sent.Kind, d.at = kind, time.Now()
	d.sent.Running++
	go func() {
		send(d)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.sent.Running--
	}()
	return true
}

// send sends n requests.
func (d *demo) send(n int, pause time.Duration) {
	for range n {
		for _, l := range d.lanes {
			l.ask()
		}
		time.Sleep(pause)
	}
}

// edge sends a quota just before the end of a period of the fixed window, and another one just after it.
func (d *demo) edge() {
	const early = window / 20
	end := time.Now().Add(early).Truncate(window).Add(window)
	time.Sleep(time.Until(end) - early)
	d.send(quota, 0)
	time.Sleep(time.Until(end) + early)
	d.send(quota, 0)
}

func (l *lane) ask() {
	d, err := l.limiter.Allow(context.Background(), "visitor")
	if err != nil {
		log.Print(err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for len(l.decisions) > 0 && now.Sub(l.decisions[0].at) > history+window {
		l.decisions = l.decisions[1:]
	}
	l.decisions = append(l.decisions, decision{now, d.Allowed})
}

// message is what the page gets.
type message struct {
	Traffic *trafficMessage `json:"traffic"` // null if there was none
	Since   float64         `json:"since"`   // seconds since a period of the fixed window began
	Lanes   []laneMessage   `json:"lanes"`
}

type trafficMessage struct {
	Kind    string  `json:"kind"`    // of what was started last
	Age     float64 `json:"age"`     // seconds since then
	Running int     `json:"running"` // buttons whose traffic has not ended
}

func (d *demo) message() message {
	now := time.Now()
	m := message{Since: now.Sub(now.Truncate(window)).Seconds(), Lanes: d.now()}
	d.mu.Lock()
	defer d.mu.Unlock()
	if sent := d.sent; sent.Kind != "" {
		sent.Age = now.Sub(d.at).Seconds()
		m.Traffic = &sent
	}
	return m
}

// laneMessage is what the page draws of a lane.
type laneMessage struct {
	Name    string    `json:"name"`
	Quota   int       `json:"quota"`
	Window  float64   `json:"window"`  // seconds
	History float64   `json:"history"` // seconds
	Most    int       `json:"most"`    // admitted in any one window that has ended within the history
	Allowed []float64 `json:"allowed"` // how old each request is, in seconds
	Denied  []float64 `json:"denied"`
}

func (d *demo) now() (all []laneMessage) {
	for _, l := range d.lanes {
		all = append(all, l.now())
	}
	return all
}

func (l *lane) now() laneMessage {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := laneMessage{
		Name: l.name, Quota: quota, Window: window.Seconds(), History: history.Seconds(),
		Allowed: []float64{}, Denied: []float64{},
	}
	now := time.Now()
	var within []time.Time // admitted in the window that ends with the latest
	for _, d := range l.decisions {
		age := now.Sub(d.at)
		if d.allowed {
			within = append(within, d.at)
			for d.at.Sub(within[0]) >= window {
				within = within[1:]
			}
			if age < history {
				m.Most = max(m.Most, len(within))
				m.Allowed = append(m.Allowed, age.Seconds())
			}
		} else if age < history {
			m.Denied = append(m.Denied, age.Seconds())
		}
	}
	return m
}
