package main

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
)

// However many requests come at once, those of the plan and those to be billed are as many as the plan says, and each
// is billed under a number of its own. In the next month all are there again.
func TestOverage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := newMeter(core.NewMemoryStore())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for key, c := range customers {
				var mu sync.Mutex
				statuses, bills := map[int]int{}, map[string]int{}
				var all sync.WaitGroup
				for range 100 {
					all.Go(func() {
						r := httptest.NewRequest(http.MethodGet, "/", nil)
						r.Header.Set("X-Api-Key", key)
						w := httptest.NewRecorder()
						m.serve(w, r)
						mu.Lock()
						defer mu.Unlock()
						statuses[w.Code]++
						if bill := w.Header().Get("X-Billed"); bill != "" {
							bills[bill]++
						}
					})
				}
				all.Wait()
				served := c.plan.included + c.plan.billed
				if statuses[200] != served || statuses[429] != 100-served || len(bills) != c.plan.billed {
					t.Errorf("%s: statuses %v, billed %v; want %d served and %d billed", c.name, statuses, bills,
						served, c.plan.billed)
				}
				for i := range c.plan.billed {
					if bills[strconv.Itoa(i+1)] != 1 {
						t.Errorf("%s: billed %v, want each number once", c.name, bills)
					}
				}
			}
			time.Sleep(31 * 24 * time.Hour)
		}
	})
}
