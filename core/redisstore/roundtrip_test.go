package redisstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/redisstore"
)

func TestCheckMeasuresTheRoundTrip(t *testing.T) {
	proxy := redistest.StartProxy(t, redistest.Start(t).Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	defer rdb.Close()
	if err := redisstore.Check(t.Context(), rdb); err != nil {
		t.Errorf("a server nearby: %v", err)
	}
	proxy.SetDelay(40 * time.Millisecond)
	err := redisstore.Check(t.Context(), rdb)
	var fault *core.ConfigError
	if !errors.As(err, &fault) || fault.Option != "core.WithTimeout" ||
		!strings.Contains(fault.Remedy, "set core.WithTimeout(") {
		t.Errorf("a server 40 ms away: %v", err)
	}
}
