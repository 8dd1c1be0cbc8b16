package plan

import (
	"testing"
	"time"

	"github.com/sashlimit/sash/core/store"
)

type testKey struct{}

func (testKey) LogName() string { return "key" }

// An override remembers the plans that were made of it last, so that rules which were loaded again a hundred times get
// the same plan for each request.
func TestOverrideRemembersTheLatestPlans(t *testing.T) {
	spaces := &Spaces{
		NamedSpaces: NewNamedSpaces("p", nil), OwnKey: testKey{}, Named: true, Check: func(*Plan) error { return nil },
	}
	limit := Limit{Name: "l", Quota: 1, Window: time.Second, Algorithm: store.SlidingLog}
	o := NewOverride([]Limit{limit})
	for i := range 2 * manyOverridden {
		base, err := New([]Limit{limit}, "limits")
		if err == nil {
			err = spaces.Split(base)
		}
		if err != nil {
			t.Fatal(err)
		}
		first, err := o.Plan(base, base.Logs[0].KeySpace, spaces.Check)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := o.Plan(base, base.Logs[0].KeySpace, spaces.Check); again != first || err != nil {
			t.Fatalf("plan %d was made twice, %v", i+1, err)
		}
	}
	if n := len(*o.made.Load()); n != manyOverridden {
		t.Errorf("%d plans are remembered, want %d", n, manyOverridden)
	}
}
