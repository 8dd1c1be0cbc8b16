package bricksllm_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/examples/ports/bricksllm"
	"github.com/sashlimit/sash/examples/ports/internal/porttest"
)

// limiter admits a request that may cost so many dollars, and returns the function that counts it afterwards, or nil.
type limiter func(k *bricksllm.Key, cost float64) (count func(cost float64))

// left is how long the present second, minute, hour or day goes on.
func left(unit bricksllm.TimeUnit) time.Duration {
	window := map[bricksllm.TimeUnit]time.Duration{"m": time.Minute, "d": 24 * time.Hour}[unit]
	return time.Until(time.Now().Truncate(window).Add(window))
}

// original decides as BricksLLM does: a request passes unless its key is locked. When the response has ended, the
// request and its cost are counted, and if a limit is reached, the key is locked until the end of the limit's period.
func original() limiter {
	var redis porttest.Redis
	return func(k *bricksllm.Key, _ float64) func(float64) {
		if redis.Get("lock "+k.KeyID) > 0 {
			return nil
		}
		return func(cost float64) {
			micros := redis.IncrBy("cost "+k.KeyID, int64(cost*1e6), left(k.CostLimitInUsdUnit))
			requests := redis.IncrBy("requests "+k.KeyID, 1, left(k.RateLimitUnit))
			switch {
			case requests >= int64(k.RateLimitOverTime):
				redis.Set("lock "+k.KeyID, left(k.RateLimitUnit))
			case micros >= int64(k.CostLimitInUsdOverTime*1e6):
				redis.Set("lock "+k.KeyID, left(k.CostLimitInUsdUnit))
			}
		}
	}
}

func port(t *testing.T) limiter {
	t.Helper()
	v, err := bricksllm.NewValidator(core.NewMemoryStore())
	if err != nil {
		t.Fatal(err)
	}
	return func(k *bricksllm.Key, cost float64) func(float64) {
		d, err := v.Validate(context.Background(), k, cost)
		if err != nil {
			return nil
		}
		return func(cost float64) {
			if err := bricksllm.RecordKeySpend(context.Background(), k, d, cost); err != nil {
				t.Error(err)
			}
		}
	}
}

func key() *bricksllm.Key {
	return &bricksllm.Key{
		KeyID: "key-1", RateLimitOverTime: 5, RateLimitUnit: "m", CostLimitInUsdOverTime: 10, CostLimitInUsdUnit: "d",
	}
}

// Until the first responses have ended, nothing is counted.
func TestInFlight(t *testing.T) {
	porttest.Compare(t, original, port, func(l limiter) bool {
		var admitted porttest.Log
		porttest.AtOnce(50, func() {
			if count := l(key(), 0.01); count != nil {
				admitted.Admit(1)
				time.Sleep(5 * time.Second)
				count(0.01)
			}
		})
		return admitted.Len() < 5 || admitted.Breaks(core.PerMinute(5))
	})
}

// Twice the quota fits around the beginning of a minute.
func TestEdge(t *testing.T) {
	porttest.Compare(t, original, port, func(l limiter) bool {
		var admitted porttest.Log
		for _, pause := range []time.Duration{59 * time.Second, time.Second} {
			time.Sleep(pause)
			for range 8 {
				if count := l(key(), 0.01); count != nil {
					admitted.Admit(1)
					count(0.01)
				}
			}
		}
		return admitted.Len() < 5 || admitted.Breaks(core.PerMinute(5))
	})
}

// A key that has used up the dollars of its day is locked until the day ends, unless a response that ends later reaches
// the requests of the minute: then the lock ends with the minute.
func TestLock(t *testing.T) {
	porttest.Compare(t, original, port, func(l limiter) bool {
		var units porttest.Log // hundredths of a cent
		ask := func(dollars float64) (count func(float64)) {
			if count = l(key(), dollars); count != nil {
				units.Admit(int(dollars * 10_000))
			}
			return count
		}
		for range 3 {
			ask(0.01)(0.01)
		}
		slow := ask(0.01)
		ask(9.96)(9.96)
		slow(0.01)
		time.Sleep(time.Minute)
		ask(5)
		return units.Breaks(core.PerDay(100_000))
	})
}

// A key has the limits that are not 0.
func TestLimitsOfZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := port(t)
		for i := range 20 {
			for name, want := range map[string]bool{"none": true, "requests": i < 5, "dollars": i < 9} {
				k := &bricksllm.Key{KeyID: name}
				if name == "requests" {
					k.RateLimitOverTime, k.RateLimitUnit = 5, "m"
				}
				if name == "dollars" {
					k.CostLimitInUsdOverTime, k.CostLimitInUsdUnit = 10, "d"
				}
				count := l(k, 2)
				if count != nil {
					count(1)
				}
				if allowed := count != nil; allowed != want { // the tenth would have to reserve 2 of 1
					t.Errorf("request %d of a key with a limit of %s: allowed %v, want %v", i+1, name, allowed, want)
				}
			}
		}
	})
}
