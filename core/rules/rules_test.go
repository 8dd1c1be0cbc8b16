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

// parse makes a set of a file without mistakes.
func parse(t testing.TB, text string, opts ...rules.Option) *rules.Set {
	t.Helper()
	set, err := rules.Parse([]byte(text), "limits.yaml", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func limiterOf(t testing.TB, set *rules.Set) *core.Limiter {
	t.Helper()
	l, err := set.Limiter()
	if err != nil {
		t.Fatal(err)
	}
	return l
}
