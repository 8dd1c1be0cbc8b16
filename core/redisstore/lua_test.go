package redisstore_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/redisstream"
)

// documented returns the commands that the documentation of a package names.
func documented(t *testing.T, dir string) []string {
	t.Helper()
	text, err := os.ReadFile(dir + "/doc.go")
	must(t, err)
	_, list, _ := strings.Cut(strings.ReplaceAll(string(text), "\n//", ""), "with a user that may run ")
	list, _, _ = strings.Cut(list, "on keys")
	return regexp.MustCompile(`[A-Z]{3,}`).FindAllString(list, -1)
}

// The commands that the documentation and advice name are those that the scripts call.
func TestCommands(t *testing.T) {
	calls := regexp.MustCompile(`call\('([A-Z]+)'`)
	for _, dir := range []string{"../redisstore", "../redisstream"} {
		var called []string
		for _, pattern := range []string{dir + "/lua/*", "../internal/redisclient/lua/*"} {
			names, err := filepath.Glob(pattern)
			if err != nil || len(names) == 0 {
				t.Fatal(names, err)
			}
			for _, name := range names {
				text, err := os.ReadFile(name)
				must(t, err)
				for _, found := range calls.FindAllSubmatch(text, -1) {
					called = append(called, string(found[1]))
				}
			}
		}
		called = append(called, "EVAL", "EVALSHA")
		slices.Sort(called)
		called = slices.Compact(called)
		named := documented(t, dir)
		if slices.Sort(named); !slices.Equal(called, named) {
			t.Errorf("the scripts of %s call\n%q, and the documentation names\n%q", dir, called, named)
		}
	}
}

// A user with these commands alone, on the store's keys, is enough for Check, and Check misses each command that the
// documentation names, but for those of overrides.
func TestCheckOfPermissions(t *testing.T) {
	rdb := start(t)
	for dir, check := range map[string]func(context.Context, *redis.Client) error{
		"../redisstore":  func(ctx context.Context, c *redis.Client) error { return redisstore.Check(ctx, c) },
		"../redisstream": func(ctx context.Context, c *redis.Client) error { return redisstream.Check(ctx, c) },
	} {
		commands := documented(t, dir)
		as := func(without string, last ...any) error {
			flush(t, rdb)
			rules := []any{"ACL", "SETUSER", "app", "reset", "on", "nopass", "~sash:*", "+info"}
			for _, command := range commands {
				if command != without {
					rules = append(rules, "+"+strings.ToLower(command))
				}
			}
			must(t, rdb.Do(t.Context(), append(rules, last...)...).Err())
			o := *rdb.Options()
			o.Username, o.Password = "app", "any"
			app := redis.NewClient(&o)
			defer app.Close()
			return check(t.Context(), app)
		}
		if err := as(""); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
		if n := rdb.DBSize(t.Context()).Val(); n != 0 {
			t.Errorf("%s: %d keys are left", dir, n)
		}
		for rule, want := range map[string]string{"-info": "maxmemory-policy", "resetkeys": "~sash:*"} {
			if err := as("", rule); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s with %s: %v", dir, rule, err)
			}
		}
		for _, command := range commands {
			if strings.HasPrefix(command, "H") { // of overrides
				continue
			}
			if err := as(command); err == nil || !strings.Contains(err.Error(), "+"+strings.ToLower(command)) {
				t.Errorf("%s without %s: %v", dir, command, err)
			}
		}
	}
}
