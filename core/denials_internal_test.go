package core

import (
	"testing"
	"testing/synctest"
	"time"
)

// When a denial has grown old one asks again; what can never pass is another question.
func TestWhoAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDenials(time.Second, time.Now())
		take := &Take{Key: *textKey(newSpace("p", nil), "k"), Limits: Limits{PerHour(5)}, Cost: 1}
		dear := &Take{Key: take.Key, Limits: take.Limits, Cost: 6}
		denied := &Answer{Retry: time.Hour, State: [MaxLimits]State{{Used: 5, Reset: time.Hour}}}
		d.note(take, denied, d.expect(take, 0))
		known := func(t *Take) bool { return d.answer(t, new(Answer)) }
		if !known(take) || known(dear) {
			t.Error("a fresh denial is not told, or told to what can never pass")
		}
		time.Sleep(time.Second)
		if known(dear) || known(take) || !known(take) {
			t.Error("want one to ask, and not what can never pass")
		}
		time.Sleep(time.Second / 16)
		if known(take) {
			t.Error("a denial is told for too long")
		}
	})
}
