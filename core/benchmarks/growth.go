package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/store"
)

// usual is how many checks a second have filled the logs that are measured, and
// about as many as come then: so as many entries leave as are added.
const usual = 60_000

// growth measures sash in Redis as something grows: the keys,
// the quotas, the limits, the processes or the nodes.
func (r *run) growth() {
	r.server().Timeout = 30 * time.Second // to forget a million keys
	columns := []string{
		"bytes a key", "alone: µs", "alone: µs of Redis", "64: checks a second", "64: µs", "64: µs of Redis",
	}
	keys := r.table("growth-keys", "As keys grow: logs of about 10 entries, 1 and 64 goroutines", columns...)
	quotas := r.table("growth-quotas", "As quotas grow: logs that are full to four fifths, 1 and 64 goroutines",
		slices.Concat(columns, []string{"denied, alone: µs of Redis"})...)
	limits := r.table("growth-limits", "As limits grow: each of a longer window, 1 and 64 goroutines", columns...)
	units := r.million / 2
	turns := []struct {
		t *Table
		g grown
	}{
		{keys, grown{row: "10 keys", keys: 10, held: 10, quota: 1000}},
		{keys, grown{row: "1,000 keys", keys: 1000, held: 10, quota: 1000}},
		{keys, grown{row: "100,000 keys", keys: 100_000, held: 10, quota: 1000}},
		{keys, grown{row: "1,000,000 keys", keys: r.million, held: 10, quota: 1000}},
		{quotas, grown{row: "a quota of 10", keys: units / 10, held: 8, quota: 10}},
		{quotas, grown{row: "100", keys: units / 100, held: 80, quota: 100}},
		{quotas, grown{row: "1,000", keys: units / 1000, held: 800, quota: 1000}},
		{quotas, grown{row: "10,000", keys: units / 10_000, held: 8000, quota: 10_000}},
		{quotas, grown{row: "100,000", keys: max(1, units/100_000), held: 80_000, quota: 100_000}},
		{limits, grown{row: "1 limit", keys: units / 100, held: 50, quota: 100}},
		{limits, grown{row: "2 limits", keys: units / 100, held: 50, quota: 100, further: 1}},
		{limits, grown{row: "3 limits", keys: units / 100, held: 50, quota: 100, further: 2}},
		{limits, grown{row: "4 limits", keys: units / 100, held: 50, quota: 100, further: 3}},
	}
	for range r.rounds {
		for _, turn := range turns {
			r.say("as it grows, %s", turn.g.row)
			if err := r.grow(turn.t, turn.g); err != nil {
				turn.t.named(turn.g.row, exact).fault("64: checks a second", err)
			}
			if turn.t == quotas {
				if err := r.growDenied(turn.t, turn.g); err != nil {
					turn.t.named(turn.g.row, exact).fault("denied, alone: µs of Redis", err)
				}
			}
		}
	}
	r.server().flush()
	r.processes()
	r.nodes()
}

// grown is a size of things.
type grown struct {
	row     string
	keys    int
	held    int // units in a log, within the first limit's window
	quota   int
	further int // limits
}

func (g grown) limits(l limit) core.Limits {
	limits := one(l)
	for i := range g.further {
		limits = append(limits, core.Limit{Quota: (i + 2) * l.quota, Window: time.Duration(i+2) * l.window})
	}
	return limits
}

// grow measures checks that are allowed.
func (r *run) grow(t *Table, g grown) error {
	s := r.server()
	window := time.Duration(g.keys*g.held) * time.Second / usual
	lim := limit{quota: g.quota, window: max(window.Round(time.Millisecond), time.Millisecond)}
	c := sash(g.row, g.limits, remote(s.rdb))
	keys := names(g.keys)
	s.flush()
	before := s.memory()
	if err := s.lay(g.limits(lim), keys, g.held*(g.further+1), time.Duration(g.further+1)*lim.window); err != nil {
		return err
	}
	row := t.row(c)
	if g.keys*g.held >= 10_000 { // else it is lost among other things
		row.add("bytes a key", (s.memory()-before)/float64(g.keys))
	}
	chance := rand.New(rand.NewPCG(1, 2)) // in turn they would lie beside each other
	chance.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	l, err := c.make(lim)
	if err != nil {
		return err
	}
	defer l.end()
	for _, workers := range []int{1, 64} {
		sample, cpu := r.spend(s, l, &keys, workers)
		if err := sample.trouble(exact, false); err != nil {
			return err
		}
		if workers == 1 {
			row.add("alone: µs", sample.took.quantile(0.50).Seconds()*1e6)
			row.add("alone: µs of Redis", cpu)
			continue
		}
		row.add("64: checks a second", sample.second())
		row.add("64: µs", sample.took.quantile(0.50).Seconds()*1e6)
		row.add("64: µs of Redis", cpu)
	}
	if n := s.do("DBSIZE"); n != int64(g.keys) {
		return fmt.Errorf("it has %d keys, and not the %d whose logs were laid", n, g.keys)
	}
	return nil
}

// growDenied measures denials that reach Redis.
func (r *run) growDenied(t *Table, g grown) error {
	s := r.server()
	lim := limit{quota: g.quota, window: time.Hour}
	c := sash(g.row, g.limits, remote(s.rdb), core.WithDenyCache(0))
	keys := names(g.keys)
	s.flush()
	if err := s.lay(g.limits(lim), keys, g.quota, lim.window/2); err != nil {
		return err
	}
	l, err := c.make(lim)
	if err != nil {
		return err
	}
	defer l.end()
	sample, cpu := r.spend(s, l, &keys, 1)
	if err := sample.trouble(exact, true); err != nil {
		return err
	}
	t.row(c).add("denied, alone: µs of Redis", cpu)
	return nil
}

// spend offers a load to keys in turn, and begins where the one before it has
// ended. It says what a check takes of Redis.
func (r *run) spend(s *server, l limiter, keys *[]string, workers int) (sample, float64) {
	offer := load{workers: workers, span: r.span / 8}
	run := func() sample {
		offer.keys = *keys
		done := offer.run(l.check)
		n := done.checks % len(offer.keys)
		*keys = slices.Concat(offer.keys[n:], offer.keys[:n])
		return done
	}
	run()
	offer.span = r.span / 2
	before := s.used("")
	done := run()
	after := s.used("")
	return done, (after.thread - before.thread) / float64(done.checks)
}

// memory is the memory in bytes that is not its clients'.
func (s *server) memory() float64 {
	info := fmt.Sprint(s.do("INFO", "memory"))
	return field(info, `used_memory:(\d+)`) - field(info, `mem_clients_normal:(\d+)`)
}

// layScript writes logs as takes of one unit would have left them: ARGV[1]
// entries each, evenly over the last ARGV[2] µs, a part ARGV[4] of a step earlier. ARGV[3] is
// their TTL in ms.
var layScript = redis.NewScript(`
local time = redis.call('TIME')
local now, held, over = time[1] * 1000000 + time[2], ARGV[1] + 0, ARGV[2] + 0
local chunks, chunk = {}, {}
for i = 1, held do
  chunk[#chunk + 1] = string.format('%.0f', now - over + over * (i - ARGV[4]) / held)
  chunk[#chunk + 1] = struct.pack('>I4I4', 4294967295, i)
  if #chunk == 2000 or i == held then -- unpack has room for some thousands
    chunks[#chunks + 1], chunk = chunk, {}
  end
end
for k = 1, #KEYS do
  for c = 1, #chunks do redis.call('ZADD', KEYS[k], unpack(chunks[c])) end
  redis.call('PEXPIRE', KEYS[k], ARGV[3])
end
return #KEYS`)

// lay fills the logs of all keys in a script, because checks would take minutes.
func (s *server) lay(limits core.Limits, keys []string, held int, over time.Duration) error {
	namer := &namer{MemoryStore: core.NewMemoryStore()}
	lim, err := core.New(limits, core.ByText(), core.WithStore(namer), core.WithDenyCache(0))
	if err != nil {
		return err
	}
	ctx := context.Background()
	done := 0
	for batch := range slices.Chunk(keys, max(1, 10_000/held)) {
		logs := make([]string, len(batch))
		for i, key := range batch {
			if _, err := lim.Allow(ctx, key); err != nil {
				return err
			}
			logs[i] = "sash:" + namer.key
		}
		part := float64(done) / float64(len(keys)) // or entries of all keys would leave together
		expiry := over.Milliseconds() + 60_000
		if err := layScript.Run(ctx, s.rdb, logs, held, over.Microseconds(), expiry, part).Err(); err != nil {
			return err
		}
		done += len(batch)
	}
	return nil
}

// namer is a store that only learns what a key is called in one.
type namer struct {
	*core.MemoryStore

	key string
}

func (n *namer) Take(_ context.Context, takes []store.Take, answers []store.Answer) error {
	n.key = takes[0].Key.String()
	answers[0].Allowed = true
	return nil
}

// processes measures several processes that share one Redis, and one key in it until its quota is used up.
func (r *run) processes() {
	t := r.table("growth-processes",
		"As processes grow: 64 goroutines each, 1,000 keys; and one key that all want twice",
		"checks a second", "µs", "µs of Redis", "admitted of 10,000")
	s := r.server()
	j := job{Addrs: []string{s.Addr()}}
	for range r.rounds {
		for _, n := range []int{1, 2, 4} {
			row := t.named(counted(n, "process", "processes"), exact)
			r.say("as it grows, %s", row.Name)
			s.flush()
			if _, err := r.several(row, j, n, s); err != nil {
				row.fault(t.Columns[0], err)
			}
			s.flush()
			if err := j.toTheLast(row, t.Columns[3], n, 1, 10_000); err != nil {
				row.fault(t.Columns[3], err)
			}
		}
	}
}

// nodes measures a cluster whose nodes share the keys, each of which is on one node.
func (r *run) nodes() {
	t := r.table("growth-nodes",
		"As nodes of a cluster grow: 64 goroutines, 1,000 keys; and 30 keys that two processes want twice",
		"checks a second", "µs", "µs of Redis", "the busiest node's, %", "admitted of 30,000")
	for _, n := range []int{1, 2, 3} {
		row := t.named(counted(n, "node", "nodes"), exact)
		r.say("as it grows, %s", row.Name)
		p := new(program)
		cluster := redistest.StartCluster(p, n)
		nodes := make([]*server, n)
		for i, node := range cluster.Nodes() {
			nodes[i] = &server{node, nil, p}
		}
		j := job{Addrs: cluster.Addrs(), Cluster: true}
		for i := range r.rounds {
			spent, err := r.several(row, j, 1, nodes...)
			if err != nil {
				row.fault(t.Columns[0], err)
				continue
			}
			sum := 0.0
			for _, of := range spent {
				sum += of
			}
			row.add(t.Columns[3], 100*slices.Max(spent)/sum)
			if i == 0 {
				if err := j.toTheLast(row, t.Columns[4], 2, 30, 1000); err != nil {
					row.fault(t.Columns[4], err)
				}
			}
		}
		p.end()
	}
}

// several processes check as fast as they can. It returns what each node has
// spent.
func (r *run) several(row *Row, j job, processes int, nodes ...*server) (spent []float64, err error) {
	j.Keys, j.Workers, j.Quota, j.Window = 1000, 64, 1000, r.span/8
	j.Warm, j.Span = r.span/8, r.span/2
	spent = make([]float64, len(nodes))
	done, err := j.together(processes, func() {
		for i, node := range nodes {
			spent[i] = -node.used("").thread
		}
	})
	if err == nil {
		err = done.trouble(exact, false)
	}
	if err != nil {
		return nil, err
	}
	sum := 0.0
	for i, node := range nodes {
		spent[i] += node.used("").thread
		sum += spent[i]
	}
	row.add("checks a second", done.second())
	row.add("µs", done.took.quantile(0.50).Seconds()*1e6)
	row.add("µs of Redis", sum/float64(done.checks))
	return spent, nil
}

// toTheLast has several processes ask for twice what there is, and tells how
// much they get. Any other number than all of it is a fault.
func (j job) toTheLast(row *Row, column string, processes, keys, quota int) error {
	j.Keys, j.Workers, j.Quota, j.Window = keys, 64, quota, time.Hour
	j.Checks = 2 * keys * quota / processes
	done, err := j.together(processes, func() {})
	switch {
	case err != nil:
		return err
	case done.failed > 0:
		return fmt.Errorf("%d checks fail: %w", done.failed, done.err)
	case done.allowed != keys*quota:
		return errors.New("it admits " + number(float64(done.allowed)))
	}
	row.add(column, float64(done.allowed))
	return nil
}

func counted(n int, one, several string) string {
	if n > 1 {
		one = several
	}
	return fmt.Sprintf("%d %s", n, one)
}
