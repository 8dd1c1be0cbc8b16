package trial_test

import (
	"database/sql"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/examples/recipes/trial"
)

const quota = 100

// server is a process with its own connections to the database.
func server(t *testing.T, path string, limits core.Policy) (url string, db *sql.DB) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(60000)&_pragma=synchronous(off)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(4)
	if _, err := db.ExecContext(t.Context(), trial.Schema); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(trial.Trial{DB: db, Quota: quota}.New(limits,
		func(r *http.Request) string { return r.Header.Get("Customer") },
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	t.Cleanup(s.Close)
	return s.URL, db
}

func get(t *testing.T, url, customer string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Customer", customer)
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	w.Body.Close()
	return w
}

// Whoever asks many times at once, of several servers, and after they were started again, has the trial once.
func TestOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trials")
	for run, want := range []map[int]int{
		{http.StatusOK: quota, http.StatusPaymentRequired: 20}, {http.StatusPaymentRequired: 120},
	} {
		one, _ := server(t, path, core.PerMinute(1000))
		two, _ := server(t, path, core.PerMinute(1000))
		var mu sync.Mutex
		statuses, left := map[int]int{}, map[string]int{}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for range 3 {
					for _, url := range []string{one, two} {
						w := get(t, url, "mallory")
						mu.Lock()
						statuses[w.StatusCode]++
						if w.StatusCode == http.StatusOK {
							left[w.Header.Get("X-Trial-Left")]++
						}
						mu.Unlock()
					}
				}
			})
		}
		all.Wait()
		if !maps.Equal(statuses, want) || len(left) != want[http.StatusOK] {
			t.Errorf("run %d: %v, want %v; %d numbers left", run+1, statuses, want, len(left))
		}
		if w := get(t, two, "ann"); w.StatusCode != http.StatusOK {
			t.Errorf("another customer: %s", w.Status)
		}
	}
}

// Who keeps asking after the trial does not reach the database more often than the limits allow, and a database that
// does not answer gives nobody a trial for ever.
func TestDatabase(t *testing.T) {
	url, db := server(t, filepath.Join(t.TempDir(), "trials"), core.PerHour(5))
	for i := range 10 {
		want := http.StatusOK
		if i >= 5 {
			want = http.StatusTooManyRequests
		}
		if w := get(t, url, "mallory"); w.StatusCode != want {
			t.Errorf("request %d: %s", i+1, w.Status)
		}
	}
	var used int
	if err := db.QueryRowContext(t.Context(), "SELECT used FROM trials").Scan(&used); err != nil || used != 5 {
		t.Errorf("%d used, %v; what the limit has denied takes nothing of the trial", used, err)
	}
	db.Close()
	if w := get(t, url, "ann"); w.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without the database: %s", w.Status)
	}
}
