package rules_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/rules"
)

// Processes with a store in common tell which version of a file they enforce: while they load it one after the other,
// when one ends, and after one was killed.
func TestVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := fmt.Sprintf(userRule, "2/hour"), fmt.Sprintf(userRule, "3/hour")
		s, f, late := new(coretest.FakeStore), newFile(t, old), newFile(t, old)
		start := func(f file) (l *limited, end func()) {
			ctx, cancel := context.WithCancel(t.Context())
			l = f.load(rules.WithOptions(core.WithStore(s)))
			go l.Watch(ctx)
			return l, func() {
				cancel()
				synctest.Wait()
			}
		}
		a, _ := start(f)
		_, endB := start(f)
		c, endC := start(late)
		start(newFile(t, "domain: other\n"+old))
		want := func(what string, want ...string) {
			t.Helper()
			all, err := a.Versions(t.Context())
			var got []string
			for _, v := range all {
				if v.File != f.path && v.File != late.path || time.Since(v.Loaded) > 2*time.Hour {
					t.Errorf("%s: %+v", what, v)
				}
				got = append(got, fmt.Sprint(v.Hash, " ", v.Processes))
			}
			if fmt.Sprint(got) != fmt.Sprint(want) || err != nil {
				t.Errorf("%s: %v, %v; want %v", what, got, err, want)
			}
		}
		time.Sleep(time.Second)
		before := a.Hash()
		want("at first", before+" 3")
		f.write(next)
		time.Sleep(time.Second)
		want("while a new version comes", a.Hash()+" 2", before+" 1")
		e := c.Explain(with("GET /", "user=a"))
		last := fmt.Sprintf("version %.12s in 1 process, loaded 2000-01-01T00:00:00Z\n", before)
		if text := e.String(); !strings.HasSuffix(text, last) ||
			!strings.Contains(inJSON(t, e), `"Versions":[{"Hash":"`) {
			t.Errorf("explained: %s", text)
		}
		endC()
		want("after one has ended", a.Hash()+" 2")
		time.Sleep(time.Hour)
		want("an hour later", a.Hash()+" 2")
		s.Fail(errors.New("down"))
		endB() // which cannot tell it, as if it was killed
		if all, err := a.Versions(t.Context()); err == nil || c.Explain(with("GET /", "")).Versions != nil {
			t.Errorf("in an outage: %v", all)
		}
		s.Fail(nil)
		want("after one was killed", a.Hash()+" 2")
		time.Sleep(5 * time.Minute)
		want("five minutes later", a.Hash()+" 1")
		f.load(rules.WithOptions(core.WithStore(s)))
		want("after one was started that does not watch its file", a.Hash()+" 1")
	})
}

// Processes cannot tell it in memory, or in a store that keeps no overrides.
func TestVersionsOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bare := struct{ core.Store }{new(coretest.FakeStore)}
		for _, s := range []core.Store{core.NewMemoryStore(), bare} {
			l := newFile(t, fmt.Sprintf(userRule, "2/hour")).load(rules.WithOptions(core.WithStore(s)))
			go l.Watch(t.Context())
			time.Sleep(time.Second)
			var all []rules.Version
			all, err := l.Versions(t.Context())
			if e := l.Explain(with("GET /", "user=a")); all != nil || err != nil || e.Versions != nil ||
				strings.Contains(e.String()+inJSON(t, e), "ersion") {
				t.Errorf("%T: %v, %v, %s", s, all, err, e)
			}
		}
	})
}
