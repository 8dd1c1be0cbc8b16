package engine_test

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core/internal/engine"
	"github.com/sashlimit/sash/core/internal/keys"
	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/internal/memory"
	"github.com/sashlimit/sash/core/store"
)

// newEngine returns an engine in memory, whose own key finds texts.
func newEngine(t testing.TB, change ...func(*engine.Config)) *engine.Engine {
	t.Helper()
	c := engine.Config{
		Policy: "test", Key: keys.ByValue("user"), Memory: memory.New(10_000), Overrider: new(keeper),
	}
	for _, f := range change {
		f(&c)
	}
	e, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// logsOf returns the names of the logs of a set's limits, if all keys find the text "a".
func logsOf(s *engine.Set) (names []string) {
	for i := range s.Limits {
		l := &s.Limits[i]
		key := store.Key{Namespace: s.Keys[l.Key].Namespace, Identity: text("a")}
		names = append(names, key.String()+" "+l.Log())
	}
	return names
}

// costs returns what a request costs of the limits of requests, and of those of tokens.
func costs(s *engine.Set, requests, tokens int) (all []int) {
	for _, u := range s.Units {
		if u.Name == "tokens" {
			all = append(all, tokens)
		} else {
			all = append(all, requests)
		}
	}
	return all
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// keeper keeps overrides in memory.
type keeper struct {
	all     map[string]store.Override
	version int
	reads   int
}

func (k *keeper) SetOverride(_ context.Context, _ string, o store.Override) error {
	if k.all == nil {
		k.all = make(map[string]store.Override)
	}
	before, known := k.all[o.Name]
	if k.version++; o.Value == "" {
		delete(k.all, o.Name)
	} else if !known || !o.Extend || before.Until.Before(o.Until) {
		k.all[o.Name] = o
	}
	return nil
}

func (k *keeper) Overrides(_ context.Context, _, known string) (string, []store.Override, error) {
	version := strconv.Itoa(k.version)
	if k.reads++; known == version {
		return version, nil, nil
	}
	return version, slices.Collect(maps.Values(k.all)), nil
}

// limits reads limits such as "3/minute", "5/hour by org" and "10 tokens/minute".
func limits(t testing.TB, texts ...string) (all []engine.Given) {
	t.Helper()
	for _, text := range texts {
		text, by, _ := strings.Cut(text, " by ")
		text, algorithm, _ := strings.Cut(text, " with ")
		l, err := limittext.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range store.Algorithms()[1:] {
			if a.String() == algorithm {
				l.Algorithm = a
			}
		}
		all = append(all, engine.Given{Limit: l, Key: byKeys[by]})
	}
	return all
}

// byKeys are keys of limits.
var byKeys = map[string]*keys.Spec{"org": keys.ByHeader("Org", unverified), "all": keys.Global()}

func unverified(_ context.Context, value string) (string, error) { return value, nil }

func compile(t testing.TB, e *engine.Engine, texts ...string) *engine.Set {
	t.Helper()
	s, err := e.Compile(limits(t, texts...), false)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func text(s string) store.Identity { return store.Identity{Kind: keys.KindBy, Text: s} }

// identities returns identities of the keys of a set: of a user, an organisation, and all.
func identities(s *engine.Set, user, org string) (ids []store.Identity) {
	for _, k := range s.Keys {
		switch k.Spec {
		case byKeys["org"]:
			ids = append(ids, store.Identity{Kind: "hdr", Scope: "org", Text: org})
		case byKeys["all"]:
			ids = append(ids, keys.Everybody)
		default:
			ids = append(ids, text(user))
		}
	}
	return ids
}

func wait(ctx context.Context, e *engine.Engine, s *engine.Set, a *engine.Ask, r *engine.Result) error {
	waits := *a
	waits.Waits = true
	return e.Decide(ctx, s, &waits, r)
}

func allow(t *testing.T, e *engine.Engine, s *engine.Set, a *engine.Ask) *engine.Result {
	t.Helper()
	r := new(engine.Result)
	if err := e.Decide(t.Context(), s, a, r); err != nil {
		t.Fatal(err)
	}
	return r
}
