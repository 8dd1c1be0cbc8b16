package redisserver_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core/internal/redisserver"
)

// SASH_REDIS_SERVER chooses the binary, by a path or by a name on PATH.
func TestServerOfTheEnvironment(t *testing.T) {
	redisserver.Start(t) // without redis-server this skips the test
	server := os.Getenv("SASH_REDIS_SERVER")
	if server == "" {
		server = "redis-server"
	}
	server, err := exec.LookPath(server)
	if err != nil {
		t.Fatal(err)
	}
	if server, err = filepath.Abs(server); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	chosen, started := filepath.Join(dir, "another-server"), filepath.Join(dir, "started")
	script := "#!/bin/sh\n: >'" + started + "'\nexec '" + server + "' \"$@\"\n"
	if err := os.WriteFile(chosen, []byte(script), 0o700); err != nil { //nolint:gosec // to be run
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	for _, named := range []string{chosen, "another-server"} {
		os.Remove(started)
		t.Setenv("SASH_REDIS_SERVER", named)
		redisserver.Start(t)
		if _, err := os.Stat(started); err != nil {
			t.Errorf("%s was not started: %v", named, err)
		}
	}

	t.Setenv("SASH_REDIS_SERVER", "no-such-server")
	got := capture(t, func(tb testing.TB) { redisserver.Start(tb) })
	if !got.failed || !strings.Contains(got.said, "no-such-server") {
		t.Errorf("failed: %v, said: %s", got.failed, got.said)
	}
}
