package faults_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/redisserver"
	"github.com/sashlimit/sash/core/redisstore"
)

// odd are replies that no script of the store gives, byte for byte. Where a reply is incomplete, the client waits for
// the rest in vain.
var odd = []string{
	"+OK\r\n", "+\r\n", "$-1\r\n", "$0\r\n\r\n", "$2\r\nOK\r\n",
	":1\r\n", ":\r\n", ":9223372036854775808\r\n", ":-1\r\n",
	"*0\r\n", "*-1\r\n", "*-2\r\n", "*1\r\n:0\r\n",
	"*1\r\n:-9223372036854775808\r\n", "*1\r\n:9223372036854775807\r\n",
	"*1\r\n*1\r\n*1\r\n:1\r\n", "*2\r\n:0\r\n$-1\r\n", "*4\r\n:1\r\n:0\r\n:0\r\n$1\r\nx\r\n",
	"*4\r\n:1\r\n:0\r\n:0\r\n:-1\r\n", "*4\r\n:2\r\n:0\r\n:0\r\n:0\r\n", "*4\r\n:0\r\n:0\r\n:0\r\n:0\r\n",
	"*4\r\n:1\r\n:0\r\n:4611686018427387904\r\n:0\r\n",
	"*5\r\n:0\r\n:2\r\n:0\r\n:0\r\n:0\r\n",
	"*6\r\n:1\r\n:0\r\n:0\r\n:0\r\n:-1\r\n:0\r\n", "*6\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n",
	"*7\r\n:2\r\n:0\r\n:9\r\n:0\r\n:0\r\n:9\r\n:0\r\n", "*2\r\n:-9223372036854775808\r\n:-1\r\n",
	"*4\r\n:1\r\n:0\r\n:0\r\n:9223372036854775808\r\n", "*3\r\n+1\r\n+0\r\n+0\r\n", "*1000\r\n:1\r\n",
	"%1\r\n+a\r\n:1\r\n", "~2\r\n:1\r\n:1\r\n", ">2\r\n+message\r\n+x\r\n", "_\r\n", "#t\r\n",
	",1.5\r\n", ",nan\r\n", "(99999999999999999999\r\n", "=7\r\ntxt:one\r\n", "|1\r\n+ttl\r\n:1\r\n",
	"-\r\n", "-ERR odd\r\n", "!5\r\nERR x\r\n",
	"-NOSCRIPT No matching script.\r\n", "-MOVED 1 127.0.0.1:1\r\n", "-ASK 1 127.0.0.1:1\r\n",
	"HTTP/1.1 400 Bad Request\r\n\r\n", "\r\n", "\x00\x00\x00\x00\r\n",
	"*4\r\n:1\r\n", "*4", "*4\r\n$104857600\r\n", "$104857600\r\n",
	"*9223372036854775807\r\n", "*4\r\n$9223372036854775807\r\n", "*99999999999999999999\r\n",
	strings.Repeat("*1\r\n", 10_000),
}

// A server that gives odd replies is handled like a server that does not answer.
func TestOddReplies(t *testing.T) {
	var reply atomic.Pointer[string]
	addr := redisserver.StartFake(t, func(command []string) string {
		if strings.HasPrefix(command[0], "EVAL") {
			return *reply.Load()
		}
		return ""
	})
	r := begin(t, "odd replies", fmt.Sprintf("a server that sends %d kinds of nonsense", len(odd)))
	defer r.end()
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	r.inject(func() {})
	admitted, asked := 0, 0
	for i := range odd {
		reply.Store(&odd[i])
		// Each limit may be answered with one number.
		policies := []core.Limits{{core.PerHour(2)}, {core.PerHour(2), core.PerDay(9)}}
		if testing.Short() {
			policies = policies[i%2 : i%2+1]
		}
		for _, limits := range policies {
			rdb := redis.NewClient(&redis.Options{Addr: addr})
			l, err := core.New(limits, core.ByText(), core.WithStore(redisstore.New(rdb)), core.WithObserver(r.observe))
			if err != nil {
				t.Fatal(err)
			}
			of := r.burst(l, "k", 3)
			if of.degraded != 3 || of.admitted != 2 {
				r.errorf("%.40q to %v: %d admitted, %d degraded, %d failed of 3",
					odd[i], limits, of.admitted, of.degraded, of.failed)
			}
			admitted += of.admitted
			asked++
			l.Close()
			rdb.Close()
		}
	}
	r.over()
	r.exactly("", admitted, 2*asked)
	r.says("store (protocol)")
	growth := heap() - before
	// A client that is closed lets go of what it has made room for when its last goroutine ends.
	if !eventually(5*time.Second, func() bool { growth = heap() - before; return growth <= 10<<20 }) {
		r.errorf("the heap has grown by %d MB", growth>>20)
	}
	r.tellf("heap %+d kB", growth>>10)
}
