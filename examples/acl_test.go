package examples_test

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/redisstream"
)

// The Redis user of docs/operating.md may do what the stores need, and without one of its lines Check reports that.
func TestUserOfRedis(t *testing.T) {
	text, err := os.ReadFile("../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^ACL SETUSER sash .*$`).FindAllString(string(text), -1)
	stream := regexp.MustCompile("`(\\+xadd [a-z +]+)`").FindStringSubmatch(string(text))
	if len(lines) != 4 || stream == nil {
		t.Fatalf("docs/operating.md has the lines %q, and for streams %q", lines, stream)
	}
	server := redistest.Start(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { admin.Close() })

	// user returns a client of a user that has the permissions of these lines alone.
	user := func(lines ...string) *redis.Client {
		lines = append([]string{"ACL SETUSER sash reset", "ACL SETUSER sash on"}, lines...)
		for _, line := range lines {
			var args []any
			for word := range strings.FieldsSeq(line) {
				args = append(args, word)
			}
			if err := admin.Do(t.Context(), args...).Err(); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "sash", Password: "password"})
		t.Cleanup(func() { rdb.Close() })
		return rdb
	}
	decides := func(store core.Store, limit core.Limit) {
		t.Helper()
		l, err := core.New(limit, core.Global(), core.WithStore(store), core.WithFailure(core.FailClosed),
			core.WithTimeout(10*time.Second)) // the machine may be busy
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			if d, err := l.Allow(t.Context(), "k"); err != nil || d.Allowed != (i == 0) {
				t.Errorf("%v, take %d: allowed %v, %v", limit, i+1, d.Allowed, err)
			}
		}
	}

	rdb := user(lines...)
	if err := redisstore.Check(t.Context(), rdb); err != nil {
		t.Errorf("Check of a user with all lines: %v", err)
	}
	decides(redisstore.New(rdb), core.PerHour(1))
	decides(redisstore.New(rdb), core.PerHour(1).With(core.FixedWindow))

	overrides := func(store core.Store) error {
		l, err := core.New(core.PerHour(1), core.Global(), core.WithStore(store), core.WithName("o"),
			core.WithOverrides())
		if err != nil {
			t.Fatal(err)
		}
		until := time.Now().Add(time.Hour)
		for _, key := range []string{"a", "b"} {
			err = errors.Join(err, l.Override(t.Context(), key, core.Override{Denied: true, Until: until}))
		}
		_, listed := l.Overrides(t.Context())
		return errors.Join(err, listed, l.RemoveOverride(t.Context(), "a"))
	}
	if err := overrides(redisstore.New(rdb)); err != nil {
		t.Errorf("overrides of a user with all lines: %v", err)
	}
	err = overrides(redisstore.New(user(lines[:3]...)))
	if err == nil || !strings.Contains(err.Error(), "+hget") {
		t.Errorf("overrides of a user without the last line: %v", err)
	}

	rdb = user(lines[0], lines[3], "ACL SETUSER sash "+stream[1])
	if err := overrides(redisstream.New(rdb)); err != nil {
		t.Errorf("overrides of a user for streams: %v", err)
	}
	rdb = user(lines[0], "ACL SETUSER sash "+stream[1])
	if err := redisstream.Check(t.Context(), rdb); err != nil {
		t.Errorf("Check of a user for streams: %v", err)
	}
	decides(redisstream.New(rdb), core.PerHour(1))

	decides(redisstore.New(user(lines[0], lines[1])), core.PerDay(1)) // without what other algorithms need
	err = redisstore.Check(t.Context(), user(lines[0], lines[2]))
	if err == nil || !strings.Contains(err.Error(), "+zadd") {
		t.Errorf("Check of a user without the second line: %v", err)
	}
}
