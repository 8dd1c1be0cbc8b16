//go:build next

package dashboard

import (
	"fmt"
	"testing"

	"github.com/sashlimit/sash/core/internal/next/core"
)

// The decisions that are kept are as few as the keys of the sketch, however many keys come once, and they are those of
// its keys.
func TestFewDecisionsAreKept(t *testing.T) {
	var k keys
	k.watch()
	most := 0
	for i := range 200_000 {
		k.add(&core.Event{Policy: "p", Key: fmt.Sprint("client-", i)})
		if i%100 == 0 {
			k.add(&core.Event{Policy: "p", Key: fmt.Sprint("busy-", i%1000)})
		}
		most = max(most, len(k.latest))
	}
	if most > 2*topKeys {
		t.Errorf("%d decisions are kept", most)
	}
	hot := k.hottest(true)
	if len(hot) != shownKeys {
		t.Fatalf("%d keys are shown", len(hot))
	}
	for _, h := range hot {
		if _, name, ok := k.find(h.ID); !ok || name != "p"+separator+h.Name {
			t.Errorf("%+v: found %t, %q", h, ok, name)
		}
	}
}

// Degraded decisions, which may have asked no limit, do not replace others. Requests of long ago count less.
func TestKeysAge(t *testing.T) {
	var k keys
	k.watch()
	key := func(degraded bool) *core.Event {
		return &core.Event{Policy: "p", Key: "k", Decision: core.Decision{Degraded: degraded, Used: 7}}
	}
	for range 7 {
		k.add(key(false))
	}
	k.add(key(true))
	if d, _, _ := k.find(k.hottest(false)[0].ID); d.Degraded || d.Used != 7 {
		t.Error(d)
	}
	for range fade {
		k.tick()
	}
	if n := k.hottest(false)[0].Requests; n != 4 {
		t.Errorf("%d requests", n)
	}
	k.forget()
	if n := len(k.hottest(false)); n != 0 {
		t.Errorf("%d keys", n)
	}
}
