package coretest

import (
	"context"
	_ "embed"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sashlimit/sash/core"
)

//go:embed testdata/headers.json
var headerVectors []byte

// Headers compares an adapter's answers with the exact bytes for given
// states of the log, on the given store.
func Headers(t *testing.T, c StoreConfig, serve Serve) {
	if c.Run == nil {
		c.Run = func(t *testing.T, name string, f func(*testing.T)) { t.Run(name, f) }
	}
	var file struct {
		Vectors []struct {
			ID, Desc string
			Limits   []struct {
				Name   string
				Quota  int
				Window int `json:"window_ms"`
			}
			Ages []int `json:"entries_age_ms"`
			Cost int
			Want struct {
				Status   int
				Headers  map[string]string
				Violated []string `json:"violated-policies"`
				Retry    int      `json:"retry_after_ms"`
			}
		}
	}
	if err := json.Unmarshal(headerVectors, &file); err != nil || len(file.Vectors) == 0 {
		t.Fatalf("%d vectors, %v", len(file.Vectors), err)
	}
	for _, v := range file.Vectors {
		c.Run(t, v.ID, func(t *testing.T) {
			store, advance := c.New(t)
			name := core.WithName("vectors")
			slices.Sort(v.Ages)
			slices.Reverse(v.Ages)
			fill := limiter(t, store, core.Limit{Quota: 100_000, Window: core.MaxWindow}, name)
			fillUp := serve(t, func() string { return text }, fill)
			for i, age := range v.Ages {
				// Global and Allow name different logs, so the entries are added by requests too.
				if r := fillUp(newRequest(t, "GET")); r.StatusCode != http.StatusOK {
					t.Fatalf("entry %d: status %d", i, r.StatusCode)
				}
				next := 0
				if i+1 < len(v.Ages) {
					next = v.Ages[i+1]
				}
				advance(time.Duration(age-next) * time.Millisecond)
			}
			var limits core.Limits
			for _, l := range v.Limits {
				window := time.Duration(l.Window) * time.Millisecond
				limits = append(limits, core.Limit{Name: l.Name, Quota: l.Quota, Window: window})
			}
			var got core.Decision
			l := limiter(t, store, limits, name,
				core.WithCost(func(context.Context) int { return v.Cost }),
				core.WithObserver(func(_ context.Context, e core.Event) { got = e.Decision }))
			r := serve(t, func() string { return text }, l)(newRequest(t, "GET"))
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Fatal(err)
			}

			if r.StatusCode != v.Want.Status {
				t.Errorf("%s: status %d, want %d", v.Desc, r.StatusCode, v.Want.Status)
			}
			want := fields{}
			if v.Want.Status == http.StatusTooManyRequests {
				want = problem(fields{"Cache-Control": "no-store"})
			}
			maps.Copy(want, v.Want.Headers)
			checkFields(t, v.Desc, r, want)
			if retry := time.Duration(v.Want.Retry) * time.Millisecond; got.RetryAfter != retry {
				t.Errorf("%s: retry after %v, want %v", v.Desc, got.RetryAfter, retry)
			}
			if v.Want.Status != http.StatusTooManyRequests {
				return
			}
			var document struct {
				Type, Title, Detail string
				Status              int
				Violated            []string `json:"violated-policies"`
			}
			if err := json.Unmarshal(body, &document); err != nil {
				t.Fatalf("%s: body %s: %v", v.Desc, body, err)
			}
			if document.Type != problemBase+"quota-exceeded" || document.Title != "Quota Exceeded" ||
				document.Status != v.Want.Status || document.Detail == "" ||
				!slices.Equal(document.Violated, v.Want.Violated) {
				t.Errorf("%s: problem %s, want violated-policies %q", v.Desc, body, v.Want.Violated)
			}
		})
	}
}
