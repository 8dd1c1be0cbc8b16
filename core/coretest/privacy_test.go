package coretest_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/internal/redisserver"
	"github.com/sashlimit/sash/core/jwtkey"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/nethttp"
)

// Neither identities nor, with a secret, addresses are visible to a client that monitors the server.
func TestServerLearnsNoIdentity(t *testing.T) {
	server := redisserver.Start(t)
	watch, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	fmt.Fprint(watch, "MONITOR\r\n")
	lines := bufio.NewReader(watch)
	if line, err := lines.ReadString('\n'); err != nil || line != "+OK\r\n" {
		t.Fatal(line, err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	const token, address, peer, endMark = "tok-3c2f9e17-very-secret", "198.51.100.77", "127.0.0.1", "end-7d1f"
	secret := []byte("a secret of at least 32 bytes, so")
	bearer, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "claim-of-ann-5521"}).
		SignedString(secret)
	if err != nil {
		t.Fatal(err)
	}
	keys := []core.Key{
		core.ByHeader("X-API-Key", core.Unverified),
		core.By(func(context.Context) (string, error) { return token, nil }),
		core.Join(core.ByHeader("X-API-Key", core.Unverified), core.ByIP()),
		core.ByIP(),
		core.ByForwardedIP("127.0.0.0/8"),
		jwtkey.ByClaim("sub", jwtkey.Config{Methods: []string{"HS256"}, Key: secret}),
	}
	for i, key := range keys {
		l, err := core.New(core.PerHour(1), key, core.WithStore(redisstore.New(rdb)), core.WithTimeout(time.Minute),
			core.WithName(fmt.Sprint("keys-", i)), core.WithSecret([]byte("a secret of some length")))
		if err != nil {
			t.Fatal(err)
		}
		send := coretest.HTTP1(t, nethttp.From(l)(http.NotFoundHandler()))
		for range 2 {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://sash.example/", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-Api-Key", token)
			r.Header.Set("X-Forwarded-For", address)
			r.Header.Set("Authorization", "Bearer "+bearer)
			send(r)
		}
		l.Reset(t.Context(), token)
	}
	rdb.Do(t.Context(), "ECHO", endMark)
	seen := 0
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		// The line begins with the address of our own connection to the server.
		_, command, _ := strings.Cut(line, "] ")
		if strings.Contains(command, endMark) {
			break
		}
		seen++
		for _, private := range []string{token, "very-secret", address, peer, bearer, "eyJ", "claim-of-ann"} {
			if strings.Contains(command, private) {
				t.Fatalf("the server sees %s", line)
			}
		}
	}
	if seen < len(keys)*2*3 {
		t.Errorf("only %d commands seen: the test proves nothing", seen)
	}
}
