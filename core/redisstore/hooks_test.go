package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/internal/testlen"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
)

// keeper is a hook that keeps the arguments of commands, as one may that reports them later, and their text of that
// time.
type keeper struct {
	mu    sync.Mutex
	args  [][]any
	texts []string
}

func (*keeper) DialHook(next redis.DialHook) redis.DialHook { return next }

func (k *keeper) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		k.keep(cmd)
		return next(ctx, cmd)
	}
}

func (k *keeper) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			k.keep(cmd)
		}
		return next(ctx, cmds)
	}
}

func (k *keeper) keep(cmd redis.Cmder) {
	if cmd.Name() != "evalsha" && cmd.Name() != "eval" {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.args = append(k.args, cmd.Args())
	k.texts = append(k.texts, argsText(cmd.Args()))
}

func argsText(args []any) string {
	text := ""
	for _, a := range args {
		if pointer, ok := a.(*string); ok {
			a = *pointer
		}
		text += fmt.Sprintf("%T %v\n", a, a)
	}
	return text
}

// A command's arguments stay as they are for as long as a hook keeps them.
func TestArgumentsThatAHookKeeps(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	clients := map[string]redis.UniversalClient{
		"single":  redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()}),
		"cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()}),
	}
	for name, client := range clients {
		for _, callers := range []int{1, 40} {
			t.Run(fmt.Sprintf("%s, %d callers", name, callers), func(t *testing.T) {
				k := new(keeper)
				client.AddHook(k)
				logs := redisstore.New(client)
				l := newLimiter(t, core.PerHour(5), logs, core.WithName(fmt.Sprint(name, callers)))
				commands := testlen.Of(200, 1000)
				for round := 0; len(k.args) < commands; round++ { // the callers of the round before have ended
					if round > len(k.args)+10 {
						t.Fatalf("after %d rounds the hook has seen %d commands", round, len(k.args))
					}
					var wg sync.WaitGroup
					for i := range callers {
						wg.Go(func() {
							for j := range 5 {
								if _, err := l.AllowN(t.Context(), fmt.Sprint("key ", round, i, j), 1+j%2); err != nil {
									t.Error(err)
								}
								r := newJointRequest(fmt.Sprint(name, callers, round, i%8), 3, 1000)
								if _, err := r.take(t.Context(), logs, store.ModeCharge); err != nil {
									t.Error(err)
								}
							}
						})
					}
					wg.Wait()
				}
				changed := 0
				for i, args := range k.args {
					if now := argsText(args); now != k.texts[i] {
						if changed++; changed == 1 {
							t.Errorf("command %d was\n%q\nand is now\n%q", i, k.texts[i], now)
						}
					}
				}
				if changed > 0 {
					t.Errorf("%d of %d commands have changed", changed, len(k.args))
				}
			})
		}
		client.Close()
	}
}

// Where the store's commands pass through the hooks of the client itself, one that is added after the store was made
// sees them as well.
func TestHookAddedAfterTheStore(t *testing.T) {
	if redisstore.ClonesKeepHooks() {
		t.Skip("this go-redis clones a client with the hooks that it has, so the store has those only")
	}
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
	t.Cleanup(func() { client.Close() })
	first := new(keeper)
	client.AddHook(first)
	l := newLimiter(t, core.PerHour(100), redisstore.New(client))
	hooks := []*keeper{first}
	for range 3 {
		hooks = append(hooks, new(keeper))
		client.AddHook(hooks[len(hooks)-1])
		for range 2 {
			if _, err := l.Allow(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		}
	}
	total := len(first.args) // the first call is repeated with the whole script
	for i, hook := range hooks[1:] {
		if want := 6 - 2*i; len(hook.args) < want || i == 0 && len(hook.args) != total {
			t.Errorf("hook %d has seen %d commands of %d, want %d or more", i+1, len(hook.args), total, want)
		}
	}
}

// Hooks see how overrides are set and read as well.
func TestHooksSeeOverrides(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
	t.Cleanup(func() { client.Close() })
	hook := new(keeper)
	client.AddHook(hook)
	s := full(redisstore.New(client))
	o := store.Override{Name: "a", Value: "{}", Until: time.Now().Add(time.Hour)}
	if err := s.SetOverride(t.Context(), "p", o); err != nil {
		t.Fatal(err)
	}
	if _, all, err := s.Overrides(t.Context(), "p", ""); err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if len(hook.args) != 2 {
		t.Errorf("the hook has seen %d commands, want one for each call", len(hook.args))
	}
}
