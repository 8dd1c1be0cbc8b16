package dashboard

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/event"
)

// However many keys come once, a few are kept, and those with the most requests are among them.
func TestFewKeysAreKept(t *testing.T) {
	var k keys
	k.watch()
	for i := range 200_000 {
		k.add(&core.Event{Policy: "p", Key: fmt.Sprint("client-", i)})
		if i%100 < shownKeys {
			k.add(&core.Event{Policy: "p", Key: fmt.Sprint("busy-", i%100)})
		}
	}
	if len(k.top) != mostKeys || len(k.place) != mostKeys {
		t.Errorf("%d keys are kept in %d places", len(k.place), len(k.top))
	}
	hot := k.hottest(true)
	if len(hot) != shownKeys {
		t.Fatalf("%d keys are shown", len(hot))
	}
	for _, h := range hot {
		if _, name, ok := k.find(h.ID); !ok || name != "p"+separator+h.Name || !strings.HasPrefix(h.Name, "busy-") ||
			h.Requests > 2000 || h.Requests < 1900 {
			t.Errorf("%+v: found %t, %q", h, ok, name)
		}
	}
	if k.remove("p"); len(k.hottest(true)) > 0 {
		t.Errorf("%v are left", k.hottest(true))
	}
}

// Degraded decisions, which may have asked no limit, do not replace others. Requests of long ago count less.
func TestKeysAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k keys
		k.watch()
		key := func(degraded bool) *core.Event {
			return &core.Event{Policy: "p", Key: "k", Decision: core.Decision{Degraded: degraded, Used: 7}}
		}
		for i := range 7 {
			e := key(false)
			if e.Outcome = event.Allowed; i%2 == 0 {
				e.Outcome = event.Denied
			}
			k.add(e)
		}
		k.add(key(true))
		if d, _, _ := k.find(k.hottest(false)[0].ID); d.Degraded || d.Used != 7 {
			t.Error(d)
		}
		time.Sleep(fade)
		if hot := k.hottest(false)[0]; hot.Requests != 4 || hot.Denied != 2 {
			t.Errorf("%d requests, %d denied", hot.Requests, hot.Denied)
		}
		k.forget()
		if n := len(k.hottest(false)); n != 0 {
			t.Errorf("%d keys", n)
		}
	})
}
