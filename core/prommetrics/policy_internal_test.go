package prommetrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// An event that was on its way while the policy ended makes no series.
func TestCountersAfterTheEnd(t *testing.T) {
	vec := counters("x_total", "X.", "policy", "class")
	p := &policy{name: "a", counters: make(map[series]prometheus.Counter)}
	known := p.counter(vec, "known", "")
	if n := testutil.CollectAndCount(vec); n != 1 {
		t.Fatalf("%d series", n)
	}
	p.end()
	known.Inc()
	p.counter(vec, "known", "").Inc()
	p.counter(vec, "new", "").Inc()
	if n := testutil.CollectAndCount(vec); n != 0 {
		t.Errorf("%d series", n)
	}
}
