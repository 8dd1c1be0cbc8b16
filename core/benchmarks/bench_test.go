package benchmarks

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/coretest/redistest"
)

var (
	rounds = flag.Int("rounds", 3, "how often each contestant has its turn")
	span   = flag.Duration("span", time.Second, "how long a turn is")
)

// BenchmarkRedisChecks is what a caller sees: how many checks, how long one
// takes and what it allocates. All of them are allowed.
func BenchmarkRedisChecks(b *testing.B) {
	_, rdb := start(b)
	concurrency := []int{1, 64, 256}
	type cell struct{ second, p50, p99, allocs, allowed series }
	cells := make(map[string]*cell)
	for range *rounds {
		for _, workers := range concurrency {
			for _, c := range contestants {
				// That is 100,000 checks a second, of which a limiter does fewer; if one
				// does more, the share that is allowed says so.
				check, err := c.prepare(rdb, 100, time.Second)
				if err != nil {
					b.Fatal(err)
				}
				l := load{keys: keys(1000), workers: workers, span: *span / 4}
				if _, err := l.run(b.Context(), check); err != nil { // dials, loads the script, fills the logs a little
					b.Fatalf("%s: %v", c.name, err)
				}
				l.span = *span
				s, err := l.run(b.Context(), check)
				if err != nil {
					b.Fatalf("%s: %v", c.name, err)
				}
				if s.allowed < 0.99 {
					b.Errorf("%s allows %.2f%%, which is other work than to allow", c.name, 100*s.allowed)
				}
				name := c.name + strconv.Itoa(workers)
				if cells[name] == nil {
					cells[name] = new(cell)
				}
				d := cells[name]
				d.second = append(d.second, s.second)
				d.p50 = append(d.p50, float64(s.p50))
				d.p99 = append(d.p99, float64(s.p99))
				d.allocs = append(d.allocs, s.allocs)
				d.allowed = append(d.allowed, 100*s.allowed)
			}
		}
	}
	for _, workers := range concurrency {
		t := table{out: os.Stdout}
		t.row("", "checks/s", "ratio", "p50 us", "p99 us", "allocs/check", "allowed %")
		reference := cells[contestants[0].name+strconv.Itoa(workers)]
		for _, c := range contestants {
			d := cells[c.name+strconv.Itoa(workers)]
			t.row(c.name, fixed(0, d.second.median()), fixed(2, d.second.ratio(reference.second)),
				fixed(0, d.p50.median()/1e3), fixed(0, d.p99.median()/1e3), fixed(1, d.allocs.median()), fixed(2, d.allowed.median()))
		}
		t.print(fmt.Sprintf("Redis, 1,000 keys, %d goroutines, %d rounds of %v", workers, *rounds, *span))
	}
	b.ReportMetric(0, "ns/op") // one operation is the whole table
}

// offers are what BenchmarkRedisServer offers to windows of a given quota. A
// turn must be at least two windows long: a log that is full admits in bursts,
// and half a period of them would be one burst or none.
var offers = []struct {
	name       string
	times      float64 // the quota, in each window
	window     time.Duration
	full       bool    // windows are filled before
	least, top float64 // share that must be allowed, or the numbers mean something else
}{
	{"allow", 0.5, 250 * time.Millisecond, false, 0.99, 1},
	{"mix", 2, 250 * time.Millisecond, false, 0.2, 0.7},
	{"deny", 0, time.Hour, true, 0, 0.01},
}

// BenchmarkRedisServer is what Redis sees: microseconds within the command of
// one check, by its own account. As Redis does one thing at a time, this is
// what bounds how many checks one Redis can do.
//
// All contestants get the same checks at the same rate, which none of them
// finds hard, so that they decide about logs of the same length.
func BenchmarkRedisServer(b *testing.B) {
	const rate = 10_000
	server, rdb := start(b)
	quotas := []int{5, 100, 1000}
	type cell struct{ micros, allowed series }
	cells := make(map[string]*cell)
	id := func(c contestant, quota int, offer string) string { return fmt.Sprint(c.name, quota, offer) }
	for range *rounds {
		for _, o := range offers {
			for _, quota := range quotas {
				for _, c := range contestants {
					check, err := c.prepare(rdb, quota, o.window)
					if err != nil {
						b.Fatal(err)
					}
					do(b, server, "FLUSHALL")
					l := load{workers: 16, rate: rate}
					if o.full {
						l.keys = keys(8)
						fill(b, check, l.keys, quota)
						l.span = *span / 10
					} else {
						l.keys = keys(max(1, int(rate*o.window.Seconds()/o.times/float64(quota)+0.5)))
						l.span = 2 * o.window // then the longer limit's window slides too
					}
					if _, err := l.run(b.Context(), check); err != nil {
						b.Fatalf("%s: %v", c.name, err)
					}
					do(b, server, "CONFIG", "RESETSTAT")
					l.span = *span / 2
					s, err := l.run(b.Context(), check)
					if err != nil {
						b.Fatalf("%s: %v", c.name, err)
					}
					if !c.floor && (s.allowed < o.least || s.allowed > o.top) {
						b.Errorf("%s, %s, quota %d: allows %.2f%%", c.name, o.name, quota, 100*s.allowed)
					}
					name := id(c, quota, o.name)
					if cells[name] == nil {
						cells[name] = new(cell)
					}
					d := cells[name]
					d.micros = append(d.micros, micros(b, server, c.command, s.checks))
					d.allowed = append(d.allowed, 100*s.allowed)
				}
			}
		}
	}
	for _, o := range offers {
		t := table{out: os.Stdout}
		head := []any{""}
		for _, quota := range quotas {
			head = append(head, fmt.Sprintf("quota %d", quota), "ratio", "allowed %")
		}
		t.row(head...)
		for _, c := range contestants {
			row := []any{c.name}
			for _, quota := range quotas {
				d, reference := cells[id(c, quota, o.name)], cells[id(contestants[0], quota, o.name)]
				row = append(row, fixed(1, d.micros.median()), fixed(2, d.micros.ratio(reference.micros)), fixed(1, d.allowed.median()))
			}
			t.row(row...)
		}
		t.print(fmt.Sprintf("us of Redis a check: %s, window %v, %d rounds of %v", o.name, o.window, *rounds, *span/2))
	}
	b.ReportMetric(0, "ns/op")
}

func start(b *testing.B) (*redistest.Server, *redis.Client) {
	server := redistest.Start(b)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	b.Cleanup(func() { rdb.Close() })
	return server, rdb
}

func keys(n int) []string {
	k := make([]string, n)
	for i := range k {
		k[i] = fmt.Sprintf("user-%06d", i)
	}
	return k
}

// fill uses up the quota of each key, one unit at a time as clients do: a
// larger cost is kept in another form.
func fill(b *testing.B, c check, keys []string, quota int) {
	for _, key := range keys {
		for range quota {
			if _, err := c(b.Context(), key); err != nil {
				b.Fatal(err)
			}
		}
	}
}

var stat = regexp.MustCompile(`(?m)^cmdstat_(\w+):calls=(\d+),usec=(\d+),.*failed_calls=(\d+)`)

// micros is what Redis says that a command took it, for each check.
func micros(b *testing.B, server *redistest.Server, command string, checks int) float64 {
	info := fmt.Sprint(do(b, server, "INFO", "commandstats"))
	for _, m := range stat.FindAllStringSubmatch(info, -1) {
		if m[1] != command {
			continue
		}
		calls, _ := strconv.Atoi(m[2])
		usec, _ := strconv.Atoi(m[3])
		if calls < checks || m[4] != "0" {
			b.Fatalf("%d checks, and Redis says %s", checks, m[0])
		}
		return float64(usec) / float64(checks)
	}
	b.Fatalf("no %s in:\n%s", command, info)
	return 0
}

func do(b *testing.B, server *redistest.Server, args ...string) any {
	reply, err := server.Do(args...)
	if err != nil {
		b.Fatal(err)
	}
	return reply
}

func fixed(digits int, f float64) string { return strconv.FormatFloat(f, 'f', digits, 64) }
