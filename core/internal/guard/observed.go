package guard

import (
	"context"
	"errors"
	"time"

	"github.com/sashlimit/sash/core/event"
	"github.com/sashlimit/sash/core/store"
)

// parts are what a guard asks of its store. All but the first may be nil.
type parts struct {
	store   store.Store
	joint   store.Joint
	settler store.Settler
	merger  store.Merger
	lister  store.Lister
	renewer store.Renewer
}

// observed is a store whose calls are told to a function.
type observed struct {
	store.Store
	parts

	policy string
	tell   func(context.Context, event.StoreCall)
}

// observe returns parts that tell of each call, or p if there is nobody to tell.
func (p parts) observe(policy string, tell func(context.Context, event.StoreCall)) parts {
	if tell == nil {
		return p
	}
	o := &observed{Store: p.store, parts: p, policy: policy, tell: tell}
	p.store = o
	if p.joint != nil {
		p.joint = o
	}
	if p.settler != nil {
		p.settler = o
	}
	if p.merger != nil {
		p.merger = o
	}
	if p.lister != nil {
		p.lister = o
	}
	if p.renewer != nil {
		p.renewer = o
	}
	return p
}

var errPanicked = errors.New("the store has panicked")

// told tells of a call that has begun and ended with an error. It is deferred, so err is that of a panic unless the
// call has returned.
func (o *observed) told(ctx context.Context, op event.Operation, begun time.Time, err *error) {
	o.tell(ctx, event.StoreCall{Policy: o.policy, Operation: op, Took: time.Since(begun), Err: *err})
}

func (o *observed) Take(ctx context.Context, t store.Take) (a store.Answer, err error) {
	err = errPanicked
	defer o.told(ctx, event.Take, time.Now(), &err)
	a, err = o.store.Take(ctx, t)
	return a, err
}

func (o *observed) TakeAll(ctx context.Context, takes []store.Take, answers []store.Answer) (err error) {
	err = errPanicked
	defer o.told(ctx, event.TakeAll, time.Now(), &err)
	err = o.joint.TakeAll(ctx, takes, answers)
	return err
}

func (o *observed) Settle(ctx context.Context, s store.Settlement) (err error) {
	err = errPanicked
	defer o.told(ctx, event.Settle, time.Now(), &err)
	err = o.settler.Settle(ctx, s)
	return err
}

func (o *observed) Merge(ctx context.Context, m store.MergeRequest) (err error) {
	err = errPanicked
	defer o.told(ctx, event.Merge, time.Now(), &err)
	err = o.merger.Merge(ctx, m)
	return err
}

func (o *observed) Log(ctx context.Context, key store.Key, window time.Duration) (entries []store.Entry, err error) {
	err = errPanicked
	defer o.told(ctx, event.Log, time.Now(), &err)
	entries, err = o.lister.Log(ctx, key, window)
	return entries, err
}

func (o *observed) Renew(ctx context.Context, r store.Renewal) (err error) {
	err = errPanicked
	defer o.told(ctx, event.Renew, time.Now(), &err)
	err = o.renewer.Renew(ctx, r)
	return err
}

func (o *observed) Reset(ctx context.Context, key store.Key) (err error) {
	err = errPanicked
	defer o.told(ctx, event.Reset, time.Now(), &err)
	err = o.store.Reset(ctx, key)
	return err
}
