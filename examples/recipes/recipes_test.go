package recipes

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/redisstore"
)

func connect(t *testing.T, server *redistest.Server) RueidisClient {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return RueidisClient{client}
}

// clocked runs every script at the instant of a clock.
type clocked struct {
	RueidisClient

	clock *redistest.Clock
}

func (c clocked) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(redistest.ErrNoScript)
	return cmd
}

func (c clocked) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return c.RueidisClient.Eval(ctx, c.clock.Script(script), keys, c.clock.Args(args)...)
}

// Through rueidis the store is as exact as through go-redis.
func TestRueidis(t *testing.T) {
	coretest.Store(t, coretest.StoreConfig{
		Operations: 5000, Callers: 6, Again: true, ByID: true, // as with go-redis
		InTurn: true, // the store does not know whether the client is of one server
		New: func(t *testing.T) coretest.Clocked {
			c := clocked{connect(t, redistest.Start(t)), redistest.NewClock()}
			return coretest.Clocked{Store: redisstore.New(c), Now: c.clock.Now, Advance: c.clock.Advance}
		},
	})
}

// What goes wrong has the class that it has with go-redis, and scripts are sent again after SCRIPT FLUSH.
func TestRueidisErrors(t *testing.T) {
	server := redistest.Start(t)
	open := func(client RueidisClient) (expect func(class string)) {
		limiter, err := core.New(core.PerMinute(5), core.ByText(), core.WithStore(redisstore.New(client)),
			core.WithFailure(core.FailClosed), core.WithTimeout(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { limiter.Close() })
		return func(class string) {
			t.Helper()
			_, err := limiter.Allow(t.Context(), "k")
			var failed *core.StoreError
			if errors.As(err, &failed) != (class != "") || failed != nil && failed.Class != class {
				t.Errorf("%v, want class %q", err, class)
			}
		}
	}
	do := func(args ...string) {
		t.Helper()
		if _, err := server.Do(args...); err != nil {
			t.Fatal(err)
		}
	}
	client := connect(t, server)
	expect, expectOther := open(client), open(connect(t, server))
	expect("")
	expectOther("")
	do("SCRIPT", "FLUSH")
	expect("")
	if err := redisstore.Check(t.Context(), client); err != nil {
		t.Error(err)
	}
	do("CONFIG", "SET", "min-replicas-to-write", "3")
	expect(redisstore.ClassReadOnly)
	do("CONFIG", "SET", "min-replicas-to-write", "0")
	expect("")
	client.Close()
	expect(redisstore.ClassPool)
	server.Kill()
	expectOther(redisstore.ClassRefused)
}

// The README shows the client of rueidis as it is here.
func TestREADME(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("rueidis.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "\n)\n\n") // what follows the imports
	for part := range strings.SplitSeq(strings.TrimSpace(code), "\n\n") {
		if !strings.Contains(string(readme), part) {
			t.Errorf("README.md does not show this:\n%s", part)
		}
	}
}
