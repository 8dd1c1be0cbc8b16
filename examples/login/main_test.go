package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
)

func try(h http.Handler, password string) int {
	r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader("name=ann&password="+password))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// A right password that takes longer to check than the window is long gives back its own unit, and
// none of those that others have taken since.
func TestSlowCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := login(core.NewMemoryStore(), func(_, password string) bool {
			if password == "right" {
				time.Sleep(61 * time.Second)
			}
			return password == "right"
		})
		var slow sync.WaitGroup
		for range 5 {
			slow.Go(func() {
				if status := try(h, "right"); status != http.StatusOK {
					t.Errorf("a slow check: status %d", status)
				}
			})
		}
		synctest.Wait()
		if status := try(h, "wrong"); status != http.StatusTooManyRequests {
			t.Errorf("while all of the quota is being checked: status %d, want 429", status)
		}
		time.Sleep(60*time.Second + 500*time.Millisecond)
		for i := range 5 {
			if status := try(h, "wrong"); status != http.StatusUnauthorized {
				t.Errorf("guess %d in the next window: status %d, want 401", i+1, status)
			}
		}
		slow.Wait()
		if status := try(h, "wrong"); status != http.StatusTooManyRequests {
			t.Errorf("after the slow checks have ended: status %d, want 429", status)
		}
	})
}

// Who keeps guessing stays out, even with the right password, until there was a pause.
func TestKeepsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := login(core.NewMemoryStore(), check)
		for range 5 {
			try(h, "wrong")
		}
		for range 30 {
			time.Sleep(10 * time.Second)
			if status := try(h, "correct+horse"); status != http.StatusTooManyRequests {
				t.Fatalf("while trying on: status %d, want 429", status)
			}
		}
		time.Sleep(time.Hour)
		if status := try(h, "correct+horse"); status != http.StatusOK {
			t.Errorf("an hour later: status %d, want 200", status)
		}
	})
}
