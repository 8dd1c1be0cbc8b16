// Package allocs counts allocations in tests, also on a machine that does other work meanwhile.
package allocs

import (
	"runtime/debug"
	"testing"
)

// tries is how often PerRun measures at most.
const tries = 5

// PerRun returns how many allocations a call of f makes: the least of several averages of runs calls, as
// [testing.AllocsPerRun] gives them. The runtime counts the allocations of the whole process, so what another goroutine
// allocates meanwhile is in some of the averages; what f allocates is in all of them. Garbage is not collected
// meanwhile, since a collection empties every sync.Pool, which f would have to fill again.
func PerRun(runs int, f func()) float64 {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	least := testing.AllocsPerRun(runs, f)
	for n := 1; n < tries && least > 0; n++ {
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}
