package rules

import (
	"strings"
	"testing"
)

// How many limits, and parts that have some, may apply to one request: the deepest of a branch, those of all keys, and
// apart from them all that are only tried.
func TestMostOfDescriptors(t *testing.T) {
	write := strings.NewReplacer("2", "limits: [1/day, 2/hour]", "3", "limits: [1/day, 2/hour, 3/minute]", "below",
		"descriptors")
	for descriptors, want := range map[string][4]int{
		"{key: a, 2}": {2, 1, 0, 0},
		"{key: a, shadow: true, 2, below: [{key: b, shadow: true, 3}]}":          {0, 0, 5, 2},
		"{key: a, 2}, {key: a, value: x, 3}":                                     {3, 1, 0, 0},
		"{key: a, 2}, {key: b, 3}":                                               {5, 2, 0, 0},
		"{key: a, 2, below: [{key: b, 3}]}":                                      {3, 1, 0, 0},
		"{key: a, 3, below: [{key: b, 2}]}":                                      {3, 1, 0, 0},
		"{key: a, 2, below: [{key: b, shadow: true, 3}]}":                        {2, 1, 3, 1},
		"{key: a, shadow: true, 2, below: [{key: b, 3}]}":                        {3, 1, 2, 1},
		"{key: a, 2, below: [{key: b, unlimited: true}]}":                        {2, 1, 0, 0},
		"{key: a, below: [{key: b, 2}, {key: c, 3}]}":                            {5, 2, 0, 0},
		"{key: a, 2, below: [{key: b, 2}, {key: c, 2}]}":                         {4, 2, 0, 0},
		"{key: a, below: [{key: b, shadow: true, 2}]}, {key: c, 3}":              {3, 1, 2, 1},
		"{key: a, unlimited: true}, {key: b, shadow: true, 2}":                   {0, 0, 2, 1},
		"{key: a, 2, below: [{key: b, shadow: true, 2}, {key: c, value: x, 2}]}": {2, 1, 2, 1},
	} {
		set, err := Parse([]byte("rules:\n- {name: x, descriptors: ["+write.Replace(descriptors)+"]}\n"), "limits.yaml")
		if err != nil {
			t.Fatal(err)
		}
		rule := set.active.Load().rules[0]
		if got := [4]int{
			rule.most(false, limits), rule.most(false, parts), rule.most(true, limits), rule.most(true, parts),
		}; got != want {
			t.Errorf("%s: %v, want %v", descriptors, got, want)
		}
	}
}
