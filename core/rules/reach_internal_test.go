package rules

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core/adapter"
	"github.com/sashlimit/sash/core/internal/testlen"
)

// asked is a request with values of earlier middleware.
type asked struct {
	adapter.Request

	values map[any]any
}

func (a *asked) Value(key any) any        { return a.values[key] }
func (a *asked) Context() context.Context { return context.Background() }

// randomTree is a list of descriptors with at most three limits each.
func randomTree(r *rand.Rand, keys []string) string {
	var list []string
	for _, key := range keys {
		for _, value := range []string{"", ", value: 1", ", value: 2"} {
			if r.IntN(3) > 0 {
				continue
			}
			parts := []string{"key: " + key + value}
			limits := []string{"1/day", "2/day", "3/day"}[:r.IntN(4)]
			if len(limits) > 0 {
				parts = append(parts, "limits: ["+strings.Join(limits, ", ")+"]")
			}
			below := ""
			if len(keys) > 1 && r.IntN(2) == 0 {
				below = randomTree(r, keys[1:])
			}
			if below != "" {
				parts = append(parts, "descriptors: ["+below+"]")
			}
			if len(limits) == 0 && (below == "" || r.IntN(4) == 0) {
				parts = append(parts, "unlimited: true")
			}
			if r.IntN(3) == 0 {
				parts = append(parts, "shadow: true")
			}
			list = append(list, "{"+strings.Join(parts, ", ")+"}")
		}
	}
	return strings.Join(list, ", ")
}

// A request is asked about no more than most and parts say. They are larger only where a key in several branches cannot
// have the values of all of them.
func TestMostOfDescriptors(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 6))
	exact, tested := 0, 0
	for tested < testlen.Of(60, 400) {
		tree := randomTree(r, []string{"a", "b", "c"})
		text := fmt.Sprintf("rules:\n- {name: x, descriptors: [%s]}\n", tree)
		set, err := Parse([]byte(text), "limits.yaml")
		if err != nil {
			continue // such as too many limits
		}
		tested++
		rule := set.active.Load().rules[0]
		most, mostParts := 0, 0
		for n := range 64 { // each of the three values is missing, or one of three
			q := &asked{values: make(map[any]any)}
			for i, name := range []string{"a", "b", "c"} {
				if value := n >> (2 * i) & 3; value > 0 {
					q.values[name] = fmt.Sprint(value)
				}
			}
			set.limiter.Inside().Preview(q, func(_ adapter.Request, c *choice) error { // of no interest
				if err := rule.apply(nil, c); err != nil {
					return err
				}
				sum := 0
				for _, p := range c.Applied() {
					sum += len(p.Rule.Limits)
				}
				most, mostParts = max(most, sum), max(mostParts, len(c.Applied()))
				return nil
			})
		}
		if rule.most(limits) < most || rule.most(parts) < mostParts {
			t.Fatalf("%s: %d limits in %d parts, want %d in %d", text,
				rule.most(limits), rule.most(parts), most, mostParts)
		}
		if rule.most(limits) == most && rule.most(parts) == mostParts {
			exact++
		}
	}
	if exact < tested/2 {
		t.Errorf("only %d of %d are exact", exact, tested)
	}
}
