package otelmetrics

import (
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/internal/metricsum"
)

// policy has what was counted of a policy.
type policy struct {
	decisions [metricsum.Outcomes][metricsum.Sources]atomic.Int64

	near, degraded, refunded, refundFailed, shadowAllowed, shadowDenied, shadowFailed atomic.Int64

	mu   sync.Mutex
	errs map[string]int64 // by class
}

func (p *policy) failed(class string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.errs == nil {
		p.errs = make(map[string]int64)
	}
	p.errs[class]++
}

// report calls yield with each number that is not 0.
func (p *policy) report(yield func(count int, n int64, attrs ...attribute.KeyValue)) {
	counted := func(count int, n *atomic.Int64, attrs ...attribute.KeyValue) {
		if n := n.Load(); n > 0 {
			yield(count, n, attrs...)
		}
	}
	for outcome := range p.decisions {
		for source := range p.decisions[outcome] {
			counted(requests, &p.decisions[outcome][source], attrResult.String(event.Outcome(outcome).String()),
				attrSource.String(event.Source(source).String()))
		}
	}
	counted(near, &p.near)
	counted(degraded, &p.degraded)
	counted(refunds, &p.refunded, attrResult.String("ok"))
	counted(refunds, &p.refundFailed, attrResult.String("failed"))
	counted(shadows, &p.shadowAllowed, attrResult.String("allowed"))
	counted(shadows, &p.shadowDenied, attrResult.String("denied"))
	counted(shadows, &p.shadowFailed, attrResult.String("failed"))
	p.mu.Lock()
	defer p.mu.Unlock()
	for class, n := range p.errs {
		yield(errs, n, attrError.String(class))
	}
}
