package redisstore_test

import (
	"bytes"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/redisstore"
)

// Two stores of one client and prefix hold the same logs, and limiters on them are warned of as on one store.
func TestWarnsOfLogsSharedByTwoStores(t *testing.T) {
	var b bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&b, nil)))
	defer slog.SetDefault(before)
	const nowhere = "127.0.0.1:1"
	one := redis.NewClient(&redis.Options{Addr: nowhere})
	defer one.Close()
	other := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nowhere}})
	defer other.Close()
	limiter := func(store core.Store) {
		t.Helper()
		if _, err := core.New(core.PerMinute(100), core.ByIP(), core.WithStore(store)); err != nil {
			t.Fatal(err)
		}
	}
	limiter(redisstore.New(one))
	limiter(redisstore.New(other))
	limiter(redisstore.New(one, redisstore.WithPrefix("api")))
	if b.Len() > 0 {
		t.Errorf("different logs, and there is a warning:\n%s", b.String())
	}
	limiter(redisstore.New(one))
	if got := b.String(); strings.Count(got, "two limiters share a store and a name") != 1 {
		t.Errorf("want one warning:\n%s", got)
	}
	runtime.KeepAlive(one)
}
