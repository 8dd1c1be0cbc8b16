package core

import (
	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/bridge"
	"github.com/sashlimit/sash/core/store"
)

func (l *Limiter) preview(r adapter.Request, choose bridge.Chooser[Key]) (d Decision, err error) {
	c := newChoice(l, r)
	defer c.free()
	err = adapter.Guard(func() error {
		of, pl, err := l.chosen(c, choose, &d)
		if err != nil || pl == nil {
			return err
		}
		d.take.Cost, d.take.Mode = c.Units(), store.ModePeek
		return of.decide(r.Context(), r, pl, false, &d)
	})
	if err != nil {
		return Decision{}, err
	}
	if d.plan == nil {
		d.Allowed = true
	}
	d.cloneKeys()
	return d, nil
}

func (l *Limiter) exempt(r adapter.Request) (passes bool, err error) {
	err = adapter.Guard(func() (err error) {
		passes, err = listed(l.lists, r, &wholeAddress)
		passes = passes || err == nil && l.skip != nil && l.skip(r)
		return err
	})
	return passes, err
}
