package rules_test

import (
	"net"
	"testing"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/rules"
)

func tcpAddr(s string) net.Addr {
	a, err := net.ResolveTCPAddr("tcp", s)
	if err != nil {
		panic(err)
	}
	return a
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// parse makes a set of a file without mistakes.
func parse(t testing.TB, text string, opts ...rules.Option) *rules.Set {
	t.Helper()
	set, err := rules.Parse([]byte(text), "limits.yaml", opts...)
	must(t, err)
	return set
}

func limiterOf(t testing.TB, set *rules.Set) *core.Limiter {
	t.Helper()
	l, err := set.Limiter()
	must(t, err)
	t.Cleanup(func() { l.Close() }) // or it logs that a store answers again, when another test looks at the log
	return l
}
