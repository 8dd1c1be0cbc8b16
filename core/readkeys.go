package core

import (
	"context"
	"slices"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/plan"
	"github.com/sashlimit/sash/core/internal/question"
	"github.com/sashlimit/sash/core/store"
)

// readKeys finds the logs of a decision: it reads the keys of its limits, except the limiter's own, which was read
// before. A limiter with rules has no key: the first log's takes its place. The request is nil for calls without one.
// Unless the costs of several units are known, they are those of a call that names none.
func (l *Limiter) readKeys(ctx context.Context, r adapter.Request, p *keys.Prefixes, d *Decision) (err error) {
	if d.q.More == nil && d.q.Plan.Units != nil {
		unnamed := 1 // of each unit, for a peek
		if d.q.Take.Mode != store.ModePeek {
			if unnamed, err = 0, d.q.Plan.NoUnnamed("cost"); err != nil {
				return err
			}
		}
		d.q.Price(d.q.Plan, nil, unnamed)
	}
	logs, own := d.q.Plan.Logs, l.key
	if l.choose != nil {
		own = specOf(logs[0].Key)
		if d.q.Take.Key.Identity, err = own.ReadOnce(r, p); err != nil {
			return keyError(logs[0], err)
		}
	}
	if space := d.q.Plan.OwnSpace(); space != nil && d.q.More == nil { // nothing else is to be kept
		d.q.Take.Key.Namespace = space.Namespace
		return nil
	}
	if r == nil {
		r = noRequest{ctx}
	}
	if d.q.More == nil {
		d.q.More = question.NewLogs(logs)
	}
	d.q.Take.Key.Namespace, logs = l.namespace, d.q.More.Logs
	var unread error
	for i, log := range logs {
		id := d.q.Take.Key.Identity
		same := slices.IndexFunc(logs[:i], func(earlier *plan.Log) bool { return earlier.Key == log.Key })
		switch {
		case same >= 0 && d.q.More.Takes[same].Key.Namespace != nil:
			id = d.q.More.Takes[same].Key.Identity
		case log.Key != own:
			if id, err = specOf(log.Key).ReadOnce(r, p); err != nil {
				failed := keyError(log, err)
				_, failed.call = r.(noRequest)
				if log.Deciding() > 0 {
					return failed
				}
				unread = failed // a shadow does not affect the decision
				continue
			}
		}
		d.q.More.Takes[i].Key = store.Key{Namespace: log.Space.Namespace, Identity: id}
	}
	if unread != nil {
		d.q.LeaveOutUnread(unread)
	}
	return nil
}

// keys returns the limiter's key, those of its lists and those of its limits that differ from its own.
func (c *config) keys(p *policy, own *keys.Spec) []*keys.Spec {
	all := []*keys.Spec{own}
	for _, l := range c.lists {
		all = append(all, l.Key)
	}
	if p.fixed != nil {
		for _, log := range p.fixed.Logs {
			if k := specOf(log.Key); !slices.Contains(all[1+len(c.lists):], k) && k != own { // others are read once
				all = append(all, k)
			}
		}
	}
	return all
}

// rereads reports whether the limiter's keys have parts in common.
func (c *config) rereads(p *policy, own *keys.Spec) bool {
	seen := make(map[*keys.Spec]bool)
	return slices.ContainsFunc(c.keys(p, own), func(k *keys.Spec) bool { return k.Repeats(seen) })
}

// keyError returns the error of the key of a log.
func keyError(log *plan.Log, err error) *limitKeyError {
	e := &limitKeyError{error: err, key: specOf(log.Key).Name, limit: log.Limits[0].Text}
	if log.Rule != nil {
		e.policy = log.Rule.Policy
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
