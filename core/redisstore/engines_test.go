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
)

// TestErrorsOfEngines has the errors of each engine, because a machine has one engine only. The user is alice.
func TestErrorsOfEngines(t *testing.T) {
	const (
		run, keys    = "+evalsha", "~sash:*"
		noPermission = "-NOPERM this user has no permissions to "
		failure      = "-ERR ACL failure in script: "
		inScript     = " script: 0a1b, on @user_script:48."
	)
	for _, c := range []struct{ engine, reply, class, advice string }{
		{"Redis 6.2", noPermission + "run the 'evalsha' command or its subcommand", redisstore.ClassAuth, run},
		{"Redis 6.2", noPermission + "access one of the keys used as arguments", redisstore.ClassAuth, keys},
		{"Redis 6.2", "-ERR DB index is out of range", redisstore.ClassScript, "Options.DB"},
		{"Redis 7.0", noPermission + "run the 'evalsha' command", redisstore.ClassAuth, run},
		{"Redis 7.0", "-ERR The user executing the script can't run this command or subcommand" + inScript,
			redisstore.ClassAuth, "+zadd"},
		{"Redis 7.2", "-NOPERM User alice has no permissions to run the 'evalsha' command", redisstore.ClassAuth, run},
		{"Redis 7.2", "-NOPERM No permissions to access a key", redisstore.ClassAuth, keys},
		{"Redis 7.2", failure + "User alice has no permissions to run the 'zadd' command" + inScript,
			redisstore.ClassAuth, "+zadd"},
		{"Redis 7.2", failure + "No permissions to access a key" + inScript, redisstore.ClassAuth, keys},
		{"Redis 7.2", "-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to " +
			"disk. Commands that may modify the data set are disabled", redisstore.ClassReadOnly, "log"},
		{"Redis 8.0", "-ERR Unknown Redis command called from script" + inScript,
			redisstore.ClassScript, "rename-command"},
		{"Valkey 8", "-ERR Unknown command called from script" + inScript, redisstore.ClassScript, "rename-command"},
		{"Valkey 9", failure + "User alice has no permissions to run the 'zadd' command script: on @user_script:48.",
			redisstore.ClassAuth, "+zadd"},
		{"Valkey 9", "-WRONGTYPE Operation against a key holding the wrong kind of value script: on @user_script:48.",
			redisstore.ClassType, "WithPrefix"},
		{"Valkey 9 in a cluster", "-ERR DB index is out of range", redisstore.ClassScript, "cluster-databases"},
		{"a name that looks like more",
			"-NOPERM User alice'has(no)permissions has no permissions to run the 'evalsha' command",
			redisstore.ClassAuth, run},
	} {
		addr := redistest.StartFake(t, func(command []string) string {
			if command[0] == "EVALSHA" {
				return c.reply + "\r\n"
			}
			return ""
		})
		t.Run(c.engine+" "+c.reply, func(t *testing.T) {
			wantClass(t, take(t.Context(), plain(t, &redis.Options{Addr: addr})), c.class, c.advice)
		})
	}
}

// Servers reply in two ways that they do not know a script, and must then be sent its text.
func TestScriptsAreSentToEngines(t *testing.T) {
	for _, unknown := range []string{
		"-NOSCRIPT No matching script. Please use EVAL.", "-NOSCRIPT No matching script.",
	} {
		addr := redistest.StartFake(t, func(command []string) string {
			switch command[0] {
			case "EVALSHA":
				return unknown + "\r\n"
			case "EVAL":
				return "*1\r\n:60000001\r\n"
			}
			return ""
		})
		if err := take(t.Context(), plain(t, &redis.Options{Addr: addr})); err != nil {
			t.Errorf("after %s: %v", unknown, err)
		}
	}
}

// From Redis 7.2 on the user's name is in the server's replies. It must not appear in errors, in Check or in the log.
func TestUserNameIsNotTold(t *testing.T) {
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
	rdb := plain(t, &redis.Options{Addr: addr})
	l := newLimiter(t, core.PerMinute(5), redisstore.New(rdb))
	told := ""
	for range 6 { // after five of them there is a line in the log
		if _, err := l.Allow(t.Context(), "k"); err != nil {
			told += err.Error() + "\n"
		}
	}
	if !strings.Contains(log.String(), "NOPERM") || !strings.Contains(told, "NOPERM") {
		t.Fatalf("nothing is told: %s\n%s", told, &log)
	}
	if err := check(t, rdb); err == nil || !strings.Contains(err.Error(), "+evalsha") {
		t.Error(err)
	} else {
		told += err.Error()
	}
	if all := told + log.String(); strings.Contains(all, user) {
		t.Errorf("the user's name is told:\n%s", all)
	}
}
