package redisstore_test

import (
	"bufio"
	"bytes"
	"crypto/fips140"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/redisserver"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/redisstream"
	"github.com/sashlimit/sash/core/store"
)

// The names of scripts are SHA-1 hashes, which a program that may use approved algorithms alone cannot compute with
// crypto/sha1. The child is a program of its own, because what is refused at start-up ends it before main.
func TestOnlyApprovedAlgorithms(t *testing.T) {
	const redisEnv = "SASH_TEST_FIPS_REDIS"
	if addr := os.Getenv(redisEnv); addr != "" {
		decideUnderFIPS(t, addr)
		return
	}
	t.Parallel()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), "GODEBUG=fips140=only", redisEnv+"="+redisserver.Start(t).Addr())
	out, err := child.CombinedOutput()
	switch {
	case bytes.Contains(out, []byte("fips140: FIPS 140-3 mode is ")):
		t.Skipf("this platform has no FIPS mode:\n%s", firstLines(out, 3))
	case err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())):
		t.Errorf("with fips140=only: %v\n%s", err, firstLines(out, 30))
	}
}

func firstLines(text []byte, n int) string {
	var b strings.Builder
	for lines := bufio.NewScanner(bytes.NewReader(text)); n > 0 && lines.Scan(); n-- {
		io.WriteString(&b, lines.Text()+"\n")
	}
	return b.String()
}

func decideUnderFIPS(t *testing.T, addr string) {
	if !fips140.Enabled() {
		t.Fatal("crypto/fips140 is not enabled")
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	if err := redisstore.Check(t.Context(), rdb); err != nil {
		t.Error("Check:", err)
	}
	for name, s := range map[string]store.Store{"set": redisstore.New(rdb), "stream": redisstream.New(rdb)} {
		secret := bytes.Repeat([]byte("s"), 16) // as short as may be
		l, err := core.New(core.PerHour(2), core.ByIP(), core.WithStore(s), core.WithSecret(secret),
			core.WithName(name), core.WithFailure(core.FailClosed), core.WithTimeout(time.Minute))
		must(t, err)
		for i, want := range []bool{true, true, false} {
			if d, err := l.Allow(t.Context(), "192.0.2.1"); err != nil || d.Allowed != want {
				t.Errorf("%s: request %d: allowed %v, %v; want %v", name, i+1, d.Allowed, err, want)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(name, err)
		}
	}
}
