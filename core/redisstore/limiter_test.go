package redisstore_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
)

// newLimiter makes a limiter that is closed when the test ends.
func newLimiter(t *testing.T, p core.Policy, s store.Store, opts ...core.Option) *core.Limiter {
	t.Helper()
	l, err := core.New(p, core.Global(), append([]core.Option{core.WithName("test"), core.WithStore(s)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// From Redis 7.2 on the user's name is in the server's replies. It must not appear in errors, in Check or in the log.
func TestUserNameIsNotTold(t *testing.T) {
	const user = "alice"
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	addr := redistest.StartFake(t, func(command []string) string {
		if command[0] == "EVALSHA" || command[0] == "EVAL" {
			name := strings.ToLower(command[0])
			return "-NOPERM User " + user + " has no permissions to run the '" + name + "' command\r\n"
		}
		return ""
	})
	rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	defer rdb.Close()
	l := newLimiter(t, core.PerMinute(5), redisstore.New(rdb), core.WithFailure(core.FailClosed))
	told := ""
	for range 6 { // after five of them there is a line in the log
		if _, err := l.Allow(t.Context(), "k"); err != nil {
			told += err.Error() + "\n"
		}
	}
	if !strings.Contains(log.String(), "NOPERM") || !strings.Contains(told, "NOPERM") {
		t.Fatalf("nothing is told: %s\n%s", told, &log)
	}
	if err := redisstore.Check(t.Context(), rdb); err == nil || !strings.Contains(err.Error(), "+evalsha") {
		t.Error(err)
	} else {
		told += err.Error()
	}
	if all := told + log.String(); strings.Contains(all, user) {
		t.Errorf("the user's name is told:\n%s", all)
	}
}
