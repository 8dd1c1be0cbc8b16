package definition

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sashlimit/sash/core/store"
)

// Verify agrees with adding up each window that ends at an entry.
func TestVerify(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	over := 0
	for range 5000 {
		var entries []store.Entry
		for range r.IntN(8) {
			at := time.Unix(1_000_000, 0).Add(time.Duration(r.IntN(30)) * time.Microsecond)
			entries = append(entries, store.Entry{At: at, Cost: 1 + r.IntN(3)})
		}
		quota, window := 1+r.IntN(9), time.Duration(1+r.IntN(12))*time.Microsecond
		want := false
		for _, end := range entries {
			units := 0
			for _, e := range entries {
				if age := end.At.Sub(e.At); 0 <= age && age < window {
					units += e.Cost
				}
			}
			want = want || units > quota
		}
		if err := Verify(entries, quota, window); (err != nil) != want {
			t.Fatalf("%v, %d in %v: %v, want an error %v", entries, quota, window, err, want)
		}
		if want {
			over++
		}
	}
	if over < 500 || over > 4500 {
		t.Errorf("%d of 5000 are over their quota: the test proves little", over)
	}
}

func TestVerifyTellsTheFullestWindow(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(int64(second), 0).UTC() }
	err := Verify([]store.Entry{{At: at(9), Cost: 1}, {At: at(5), Cost: 3}, {At: at(4), Cost: 2}}, 2, 2*time.Second)
	const want = "5 units in the window (1970-01-01T00:00:03Z, 1970-01-01T00:00:05Z], the quota is 2"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	err = Verify([]store.Entry{{At: at(1)}}, 1, time.Second)
	if err == nil || !strings.Contains(err.Error(), "0 units") {
		t.Errorf("%v, want an error for an entry without units", err)
	}
}
