package zf

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/redisserver"
	"github.com/sashlimit/sash/core/redisstore"
)

func TestFirst(t *testing.T) {
	for _, c := range []string{"refused", "silent", "slow", "black hole"} {
		s := redisserver.Start(t)
		p := redisserver.StartProxy(t, s.Addr())
		addr := p.Addr()
		if c == "refused" {
			addr = s.Addr()
		}
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		l, err := core.New(core.PerHour(1000), core.ByText(), core.WithStore(redisstore.New(rdb)))
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		for range 5 {
			l.Allow(ctx, "k")
		}
		before := runtime.NumGoroutine()
		var end func()
		switch c {
		case "refused":
			s.Kill()
			end = s.Restart
		case "silent":
			s.Pause()
			end = s.Resume
		case "slow":
			p.SetDelay(200 * time.Millisecond)
			end = func() { p.SetDelay(0) }
		case "black hole":
			p.BlackHole(true)
			end = func() { p.BlackHole(false) }
		}
		begun := time.Now()
		text := ""
		for range 5 {
			a := time.Now()
			d, _ := l.Allow(ctx, "k")
			text += fmt.Sprintf(" %.1f ms(%v)", float64(time.Since(a).Microseconds())/1000, d.Degraded)
		}
		most := runtime.NumGoroutine()
		state := l.Stats().Breaker
		time.Sleep(2*time.Second - time.Since(begun))
		end()
		back := time.Now()
		for {
			d, _ := l.Allow(ctx, "k")
			if !d.Degraded {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		took := time.Since(back)
		text2 := ""
		for range 3 {
			a := time.Now()
			d, _ := l.Allow(ctx, "k")
			text2 += fmt.Sprintf(" %.1f ms(%v)", float64(time.Since(a).Microseconds())/1000, d.Degraded)
		}
		fmt.Printf("%-10s first five:%s; breaker then %s; goroutines %d -> %d; back after %v, breaker %s, then%s\n", c, text, state, before, most, took.Round(time.Millisecond), l.Stats().Breaker, text2)
		l.Close()
		rdb.Close()
	}
}
