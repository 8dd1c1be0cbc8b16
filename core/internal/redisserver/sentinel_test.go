package redisserver_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core/internal/redisserver"
)

// A Sentinel that was held up goes on at once.
func TestSentinelsAreNotSuspicious(t *testing.T) {
	t.Parallel()
	s := redisserver.StartFailover(t, 1).Sentinels[0]
	reply, err := s.Do("SENTINEL", "DEBUG")
	if err != nil {
		if strings.HasPrefix(err.Error(), "ERR Unknown") {
			t.Skipf("Redis before 7.0: %v", err)
		}
		t.Fatal(err)
	}
	settings := reply.([]any)
	i := slices.IndexFunc(settings, func(s any) bool { return strings.EqualFold(s.(string), "tilt-trigger") })
	if i < 0 || settings[i+1] != "600000" {
		t.Errorf("settings %v; want a tilt-trigger of 600000", settings)
	}
}
