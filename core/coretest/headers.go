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

// headers compares answers with the exact bytes for given states of the log.
func headers(t *testing.T, serve Serve) {
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
		t.Run(v.ID, func(t *testing.T) {
			store := new(FakeStore)
			limiter := func(limits core.Limits, opts ...core.Option) *core.Limiter {
				return limiterFor(t, store, limits, core.Global(), append(opts, core.WithName("vectors"))...)
			}
			slices.Sort(v.Ages)
			slices.Reverse(v.Ages)
			var limits, filling core.Limits // of the same logs
			for _, l := range v.Limits {
				window := time.Duration(l.Window) * time.Millisecond
				limits = append(limits, core.Limit{Name: l.Name, Quota: l.Quota, Window: window})
				filling = append(filling, core.Limit{Name: l.Name, Quota: 100_000, Window: window})
			}
			fillUp := serve(t, func() string { return text }, limiter(filling))
			for i, age := range v.Ages {
				if r := fillUp(newRequest(t, "GET")); r.StatusCode != http.StatusOK {
					t.Fatalf("entry %d: status %d", i, r.StatusCode)
				}
				next := 0
				if i+1 < len(v.Ages) {
					next = v.Ages[i+1]
				}
				store.Advance(time.Duration(age-next) * time.Millisecond)
			}
			var got core.Decision
			l := limiter(limits, core.WithCost(func(context.Context) int { return v.Cost }),
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
