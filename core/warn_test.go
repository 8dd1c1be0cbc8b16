package core_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core"
)

// logged is what f makes the library log.
func logged(t *testing.T, f func()) string {
	t.Helper()
	var b bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&b, nil)))
	defer slog.SetDefault(before)
	f()
	return b.String()
}

// runs is how often TestWarnings was run in this process, which is warned of two limits once.
var runs int

func TestWarnings(t *testing.T) {
	runs++
	check := func(desc, got, want string) {
		t.Helper()
		if want == "" && got != "" || strings.Count(got, want) != 1 && want != "" || strings.Count(got, "\n") > 1 {
			t.Errorf("%s: logged\n%swant %q, once", desc, got, want)
		}
		for _, private := range []string{"203.0.113", "198.51.100", "secret-user"} {
			if strings.Contains(got, private) {
				t.Errorf("%s: %s is in the log:\n%s", desc, private, got)
			}
		}
	}
	const untrusted = "carries X-Forwarded-For, but no proxy is trusted"
	plain := from("203.0.113.9:1")
	forwarded := from("203.0.113.9:1", "X-Forwarded-For", "198.51.100.7")
	rfc7239 := from("203.0.113.9:1", "Forwarded", "for=198.51.100.7")
	first := core.First(core.ByHeader("X-API-Key", core.Unverified), core.ByIP())
	check("nothing wrong", warned(t, core.ByIP(), plain), "")
	check("forwarded", warned(t, core.ByIP(), plain, forwarded), untrusted)
	check("RFC 7239", warned(t, core.ByIP(), rfc7239), "carries Forwarded, but no proxy is trusted")
	check("trusted", warned(t, core.ByForwardedIP("203.0.113.0/24"), forwarded), "")
	check("another key", warned(t, core.ByHeader("X-Forwarded-For", core.Unverified), forwarded), "")
	check("within First", warned(t, first, forwarded), "no proxy is trusted")

	store := core.NewMemoryStore()
	with := func(name string, policies ...core.Policy) func() {
		return func() {
			for _, p := range policies {
				if _, err := core.New(p, core.ByIP(), core.WithName(name), core.WithStore(store)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	check("one policy", logged(t, with("a", core.PerMinute(1), core.PerMinute(1))), "")
	check("two names", logged(t, with("b", core.PerMinute(1))), "")
	const shares = "two limiters share a store and a name"
	name := fmt.Sprint("c", runs)
	got := logged(t, with(name, core.PerMinute(1), core.PerMinute(2), core.PerMinute(1), core.PerMinute(2)))
	check("two policies", got, shares)
	for _, want := range []string{"policy=" + name, "first=1-per-minute", "second=2-per-minute", "core.WithName"} {
		check("two policies", got, want)
	}
	check("unnamed", logged(t, func() {
		for range 3 {
			core.New(core.PerMinute(7+runs), core.ByIP(), core.WithStore(store))
		}
	}), shares)
	check("one is closed", logged(t, func() {
		old := newLimiterBy(t, core.PerMinute(1), core.ByIP(), core.WithName("d"), core.WithStore(store))
		old.Close()
		with("d", core.PerMinute(2))()
	}), "")
}

// The suite does on purpose what the library warns of.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	m.Run()
}
