package core

import (
	"context"
	"slices"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/store"
)

// readKeysWith is readKeys with prefixes that may have read keys before.
func (l *Limiter) readKeysWith(r adapter.Request, p *prefixes, d *Decision) error {
	logs := d.plan.logs
	d.joint = newJoint(len(logs))
	for i, log := range logs {
		id := d.key.Identity
		same := slices.IndexFunc(logs[:i], func(earlier *planLog) bool { return earlier.key == log.key })
		switch {
		case same >= 0:
			id = d.joint.takes[same].Key.Identity
		case log.key != l.key.keySpec:
			var err error
			if id, err = log.key.readOnce(r, p); err != nil {
				failed := d.plan.keyError(log, err)
				_, failed.call = r.(noRequest)
				return failed
			}
		}
		d.joint.takes[i].Key = store.Key{Namespace: log.space.namespace, Identity: id}
	}
	return nil
}

// rereads reports whether the limiter's key, those of its lists and those of its limits have parts in common.
func (c *config) rereads(p *policy, own Key) bool {
	keys := []*keySpec{own.keySpec}
	for _, l := range c.lists {
		keys = append(keys, l.key.keySpec)
	}
	if p.fixed != nil {
		for _, log := range p.fixed.logs {
			if !slices.Contains(keys[1+len(c.lists):], log.key) && log.key != own.keySpec { // others are read once
				keys = append(keys, log.key)
			}
		}
	}
	seen := make(map[*keySpec]bool)
	return slices.ContainsFunc(keys, func(k *keySpec) bool { return k.repeats(seen) })
}

// repeats reports whether the key or a part of it was seen before. Addresses are read again.
func (k *keySpec) repeats(seen map[*keySpec]bool) bool {
	if len(k.parts) > 0 {
		return slices.ContainsFunc(k.parts, func(part *keySpec) bool { return part.repeats(seen) })
	}
	if seen[k] {
		return true
	}
	seen[k] = !k.byPrefix
	return false
}

// keyError is an error of the key of one of the plan's logs.
func (p *plan) keyError(log *planLog, err error) *limitKeyError {
	e := &limitKeyError{error: err, key: log.key.name, limit: log.limits[0].String()}
	switch at := log.at[0]; {
	case at < len(p.rules) && at < len(p.limits):
		e.policy = p.rules[at].policy
	case p.shadow != nil && at >= len(p.limits) && at-len(p.limits) < len(p.shadow.rules):
		e.policy = p.shadow.rules[at-len(p.limits)].policy
	}
	return e
}

// noRequest is what callbacks get in calls with a context and no request.
type noRequest struct{ ctx context.Context }

func (r noRequest) Context() context.Context { return r.ctx }

func (noRequest) Peer() adapter.Peer { return adapter.Peer{} }

func (noRequest) Header(string) []string { return nil }

func (r noRequest) Value(key any) any { return r.ctx.Value(key) }

func (noRequest) Native() any { return nil }
