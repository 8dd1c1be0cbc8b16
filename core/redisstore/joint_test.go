package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/coretest"
	"github.com/sashlimit/sash/core/coretest/redistest"
	"github.com/sashlimit/sash/core/internal/deadline"
	"github.com/sashlimit/sash/core/internal/timerlag"
	"github.com/sashlimit/sash/core/redisstore"
	"github.com/sashlimit/sash/core/store"
)

// jointRequest makes requests over the logs of some keys, each under a limit of its own.
type jointRequest struct {
	keys  []store.Key
	plans []*store.Plan
}

var jointID atomic.Uint64

func newJointRequest(name string, quotas ...int) jointRequest {
	var r jointRequest
	for i, quota := range quotas {
		r.keys = append(r.keys, store.NewKey(name, fmt.Sprint("log ", i)))
		r.plans = append(r.plans, planOf(core.Limits{core.PerHour(quota)}, store.Plan{}))
	}
	return r
}

func (r jointRequest) takes(mode store.Mode) []store.Take {
	id := jointID.Add(1)
	takes := make([]store.Take, len(r.keys))
	for i := range takes {
		takes[i] = store.Take{Key: r.keys[i], Plan: r.plans[i], Cost: 1, ID: id, Mode: mode}
	}
	return takes
}

// take reports whether a request is admitted.
func (r jointRequest) take(ctx context.Context, s core.Store, mode store.Mode) (bool, error) {
	takes := r.takes(mode)
	answers := make([]store.Answer, len(takes))
	err := coretest.TakeAll(ctx, full(s), takes, answers)
	return err == nil && !slices.ContainsFunc(answers, func(a store.Answer) bool { return !a.Allowed }), err
}

// used returns how many units each log holds.
func (r jointRequest) used(t *testing.T, s core.Store) []int {
	t.Helper()
	used := make([]int, len(r.keys))
	for i, take := range r.takes(store.ModePeek) {
		a, err := coretest.Take(t.Context(), s, take)
		if err != nil {
			t.Fatal(err)
		}
		used[i] = a.State[0].Used
	}
	return used
}

// A request is one script, which calls no more commands than so many takes do.
func TestJointRequestIsOneScript(t *testing.T) {
	rdb := start(t)
	s := redisstore.New(rdb)
	ask := func(r jointRequest, want bool) {
		t.Helper()
		if ok, err := r.take(t.Context(), s, store.ModeCharge); ok != want || err != nil {
			t.Fatalf("admitted %v, %v; want %v", ok, err, want)
		}
	}
	for logs := 2; logs <= store.MaxLimits; logs++ {
		quotas := slices.Repeat([]int{2}, logs)
		r := newJointRequest(fmt.Sprint("one-script-", logs), quotas...)
		ask(r, true) // the server knows the script
		other := newJointRequest(fmt.Sprint("one-script-", logs), append(quotas[1:], 5)...)
		for _, c := range []struct {
			r       jointRequest
			allowed bool
			want    map[string]int
		}{
			{r, true, map[string]int{"time": 1, "zcard": logs, "zrange": logs, "zadd": logs, "pexpire": logs}},
			{r, false, map[string]int{"time": 1, "zcard": logs, "zrange": logs, "zscore": logs}},
			// The last log has room.
			{other, false, map[string]int{"time": 1, "zcard": logs, "zrange": logs, "zscore": logs}},
		} {
			rdb.ConfigResetStat(t.Context())
			ask(c.r, c.allowed)
			c.want["evalsha"] = 1
			for _, command := range []string{
				"evalsha", "eval", "time", "zcard", "zrange", "zadd", "pexpire", "zscore", "zcount", "pttl", "zrem",
			} {
				if n := calls(t, rdb, command); n != c.want[command] {
					t.Errorf("%d logs, allowed %v: %d of %s, want %d", logs, c.allowed, n, command, c.want[command])
				}
			}
		}
	}
}

// A denial writes nothing, also if the logs that are looked at first have room: so it is given where no writes are.
func TestJointDenialWritesNothing(t *testing.T) {
	rdb := start(t)
	s := redisstore.New(rdb)
	for name, plan := range map[string]*store.Plan{
		"short":  planOf(core.Limits{core.PerHour(2)}, store.Plan{}),
		"shadow": planOf(core.Limits{core.PerHour(2), core.PerDay(1)}, store.Plan{Shadow: 1}),
		"two":    planOf(core.Limits{core.PerSecond(100), core.PerHour(2)}, store.Plan{}),
		"varies": planOf(core.Limits{core.PerHour(2)}, store.Plan{Varies: true}),
	} {
		r := newJointRequest(name, 100, 0, 50)
		r.plans[1] = plan
		for range 2 {
			if ok, err := r.take(t.Context(), s, store.ModeCharge); !ok || err != nil {
				t.Fatal(name, err)
			}
		}
		if err := rdb.ConfigSet(t.Context(), "min-replicas-to-write", "3").Err(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if ok, err := r.take(t.Context(), s, store.ModeCharge); ok || err != nil {
				t.Errorf("%s: admitted %v, %v without replicas", name, ok, err)
			}
		}
		rdb.ConfigSet(t.Context(), "min-replicas-to-write", "0")
		if used := r.used(t, s); !slices.Equal(used, []int{2, 2, 2}) {
			t.Errorf("%s: the logs hold %v units, want 2 each", name, used)
		}
	}
}

// Requests of the same plans go to the server together.
func TestJointRequestsAreBatched(t *testing.T) {
	rdb := start(t)
	const callers, each, users = 64, 50, 8
	s := redisstore.New(rdb)
	shared := newJointRequest("batched", 1000, 1)
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			r := newJointRequest(fmt.Sprint("batched-", caller%users), 1000, 150)
			r.keys[0], r.plans[0] = shared.keys[0], shared.plans[0]
			for range each {
				ok, err := r.take(context.Background(), s, store.ModeCharge)
				if err != nil {
					t.Error(err)
				}
				if ok {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if used := newJointRequest("batched", 1000).used(t, s)[0]; admitted.Load() != 1000 || used != 1000 {
		t.Errorf("%d admitted, %d units, want 1000", admitted.Load(), used)
	}
	if n := calls(t, rdb, "evalsha"); n > callers*each/2 {
		t.Errorf("%d scripts for %d requests", n, callers*each)
	}
}

// Three processes with 64 callers each, and no log is ever above its quota. On one server, none has a unit too few.
func TestJointProcesses(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	for name, addrs := range map[string][]string{"single": {redistest.Start(t).Addr()}, "cluster": cluster.Addrs()} {
		t.Run(name, func(t *testing.T) {
			var outputs [processes]strings.Builder
			var commands []*exec.Cmd
			for i := range processes {
				c := exec.Command(os.Args[0], "-test.run=^TestJointProcess$")
				c.Env = append(os.Environ(), "SASH_JOINT_REDIS="+strings.Join(addrs, ","))
				c.Stdout, c.Stderr = &outputs[i], os.Stderr
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				commands = append(commands, c)
			}
			total := make([]int, jointUsers)
			for i, c := range commands {
				if err := c.Wait(); err != nil {
					t.Fatalf("process %d: %v\n%s", i, err, outputs[i].String())
				}
				for line := range strings.Lines(outputs[i].String()) {
					var user, n int
					if k, _ := fmt.Sscanf(line, "user %d admitted %d", &user, &n); k == 2 {
						total[user] += n
					}
				}
			}
			s := redisstore.New(redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs}))
			sum := 0
			for user, n := range total {
				sum += n
				used := jointUser(user).used(t, s)
				if n > jointUserQuota || used[0] != n {
					t.Errorf("user %d: %d admitted of %d, the log holds %d", user, n, jointUserQuota, used[0])
				}
			}
			used := jointUser(0).used(t, s)
			if sum > jointSharedQuota || used[1] != sum || name == "single" && sum != jointSharedQuota {
				t.Errorf("%d admitted of %d, the log that all share holds %d", sum, jointSharedQuota, used[1])
			}
			t.Logf("%d of %d admitted", sum, jointSharedQuota)
		})
	}
}

const (
	jointUsers       = 12
	jointUserQuota   = 60
	jointSharedQuota = 500
)

// jointUser is a request of one user, beside a log that all users share.
func jointUser(user int) jointRequest {
	return besideShared("processes", user, jointUserQuota, jointSharedQuota)
}

// besideShared is a request of one user, beside a log that all users of a policy share.
func besideShared(policy string, user, quota, shared int) jointRequest {
	r := newJointRequest(fmt.Sprint(policy, "-", user), quota, shared)
	r.keys[1] = store.NewKey(policy, "all")
	return r
}

func TestJointProcess(t *testing.T) {
	addrs := os.Getenv("SASH_JOINT_REDIS")
	if addrs == "" {
		return // only as a part of TestJointProcesses
	}
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: strings.Split(addrs, ","), ReadTimeout: time.Minute,
	})
	defer client.Close()
	s := redisstore.Patient(redisstore.New(client))
	jointID.Store(rand.Uint64())
	var admitted [jointUsers]atomic.Int64
	var wg sync.WaitGroup
	for caller := range 64 {
		wg.Go(func() {
			for i := range 2 * jointUsers {
				user := (caller + i) % jointUsers
				ok, err := jointUser(user).take(context.Background(), s, store.ModeCharge)
				if err != nil {
					t.Error(err)
				}
				if ok {
					admitted[user].Add(1)
				}
			}
		})
	}
	wg.Wait()
	for user := range admitted {
		fmt.Printf("user %d admitted %d\n", user, admitted[user].Load())
	}
}

// slotClock runs scripts on a cluster at an instant of its own: the keys that tell it are in the slot of the first key.
type slotClock struct{ clock }

func (c slotClock) Process(ctx context.Context, cmd redis.Cmder) error {
	inner := c.clock
	inner.processor = tagged{c.processor}
	return inner.Process(ctx, cmd)
}

// tagged gives the last two keys of a script the first one as a hash tag, which the script removes.
type tagged struct{ processor }

func (c tagged) Process(ctx context.Context, cmd redis.Cmder) error {
	args := cmd.Args()
	n := 3 + args[2].(int)
	for i := n - 2; i < n; i++ {
		args[i] = "{" + args[3].(string) + "}" + args[i].(string)
	}
	text := args[1].(string)
	for _, last := range []string{"table.remove(KEYS, #KEYS - 1)", "table.remove(KEYS)"} {
		text = strings.Replace(text, last, "("+last+":gsub('^{.*}', ''))", 1)
	}
	args[1] = text
	return c.processor.Process(ctx, cmd)
}

// Random requests on three nodes, against the definition.
func TestJointStoreOnCluster(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	for _, repeats := range []bool{false, true} {
		t.Run(fmt.Sprint("repeats ", repeats), func(t *testing.T) {
			coretest.Store(t, coretest.StoreConfig{
				Repeats: repeats,
				Checks:  5_000,
				New: func(t *testing.T) (core.Store, func(time.Duration)) {
					client := redis.NewClusterClient(&redis.ClusterOptions{
						Addrs: cluster.Addrs(), ReadTimeout: time.Minute,
					})
					t.Cleanup(func() {
						ctx := context.Background()
						err := client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
							return node.FlushAll(ctx).Err()
						})
						if err != nil {
							t.Error(err)
						}
						client.Close()
					})
					c := slotClock{newClock(newHashed(client))}
					if repeats {
						c.processor = twice{processor: c.processor, t: t, undone: true}
					}
					return newStore(c), c.Advance
				},
				Run: func(t *testing.T, name string, f func(*testing.T)) {
					if isJointCase(name) {
						t.Run(name, f)
					}
				},
			})
		})
	}
}

// A Ring has logs on two servers that know nothing of each other.
func TestJointOnRing(t *testing.T) {
	one, two := redistest.Start(t), redistest.Start(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": one.Addr(), "b": two.Addr()}})
	t.Cleanup(func() { ring.Close() })
	s := redisstore.New(ring)
	const quota, users = 40, 10
	var admitted atomic.Int64
	var wg sync.WaitGroup
	request := func(user int) jointRequest {
		r := newJointRequest(fmt.Sprint("ring-", user), quota/2, quota)
		r.keys[1] = store.NewKey("ring", "all")
		return r
	}
	for user := range users {
		wg.Go(func() {
			for range 20 {
				ok, err := request(user).take(context.Background(), s, store.ModeCharge)
				if err != nil {
					t.Error(err)
				}
				if ok {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	for user := range users {
		for {
			ok, err := request(user).take(t.Context(), s, store.ModeCharge)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			admitted.Add(1)
		}
	}
	sum := 0
	for user := range users {
		sum += request(user).used(t, s)[0]
	}
	if all := request(0).used(t, s)[1]; admitted.Load() != quota || all != quota || sum != quota {
		t.Errorf("%d admitted, %d units in the log of all, %d in those of users; want %d",
			admitted.Load(), all, sum, quota)
	}
}

// When the server of one log does not answer, the others forget the request, or the error says that they may not.
func TestJointFailsInTheMiddle(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: cluster.Addrs(), ContextTimeoutEnabled: true, MaxRetries: -1,
	})
	t.Cleanup(func() { client.Close() })
	s := redisstore.New(client)
	r := newJointRequest("middle", 100, 90, 80)
	owners := map[*redistest.Server]bool{}
	for i, n := 0, 0; i < len(r.keys); n++ { // a log on each node
		r.keys[i] = store.NewKey("middle", fmt.Sprint(n))
		if owner := cluster.Owner("sash:" + r.keys[i].String()); !owners[owner] {
			owners[owner] = true
			i++
		}
	}
	if ok, err := r.take(t.Context(), s, store.ModeCharge); !ok || err != nil {
		t.Fatal(err)
	}
	used := []int{1, 1, 1}
	for i := range r.keys {
		for _, mode := range []store.Mode{store.ModeCharge, store.ModeChargeDenied, store.ModeRecord} {
			node := cluster.Owner("sash:" + r.keys[i].String())
			node.Pause()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			ok, err := r.take(ctx, s, mode)
			cancel()
			node.Resume()
			var failure *store.StoreError
			if ok || !errors.As(err, &failure) {
				t.Fatalf("log %d, %v: %v, %v; want a StoreError", i, mode, ok, err)
			}
			says := strings.Contains(err.Error(), "may count")
			// The paused server has the take in its input, and executes it now.
			if !eventually(func() bool { used = r.used(t, s); return slices.Equal(used, []int{1, 1, 1}) }) && !says {
				t.Errorf("log %d, %v: the logs hold %v units, which the error does not say: %v", i, mode, used, err)
			}
			for j, take := range r.takes(store.ModePeek) {
				if j != i && used[j] != 1 {
					t.Errorf("log %d, %v: log %d, whose server was well, holds %d units", i, mode, j, used[j])
				}
				if err := s.Reset(t.Context(), take.Key); err != nil {
					t.Fatal(err)
				}
			}
			if ok, err := r.take(t.Context(), s, store.ModeCharge); !ok || err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A log forgets a request that has ended at the limiter's deadline, also by a client that does not heed deadlines.
func TestJointUndoOutlastsTheDecision(t *testing.T) {
	rdb := start(t)
	client := &hangingKey{Client: rdb, resume: make(chan struct{})}
	s, r := redisstore.New(client), newJointRequest("outlasts", 100, 100)
	if ok, err := r.take(t.Context(), s, store.ModeCharge); !ok || err != nil {
		t.Fatal(err)
	}
	client.key = stored(r.keys[1])
	ctx := deadline.New(50*time.Millisecond, nil).Within(t.Context(), time.Now())
	if _, err := r.take(ctx, s, store.ModeCharge); classOf(err) != redisstore.ClassTimeout {
		t.Errorf("%v, want a timeout", err)
	}
	entries := func() int64 { return rdb.ZCard(t.Context(), stored(r.keys[0])).Val() }
	if !eventually(func() bool { return entries() == 1 }) {
		t.Errorf("%d entries, want that of the first request alone", entries())
	}
	close(client.resume)
}

// What is recorded again, or merged, while the removal of a request that has failed is on its way is not removed by it.
func TestJointUndoComesFirst(t *testing.T) {
	for name, record := range map[string]func(*testing.T, core.Store, []store.Take) error{
		"merged": func(t *testing.T, s core.Store, takes []store.Take) error {
			entries := []store.Entry{{ID: takes[0].ID, Cost: 1}}
			return full(s).Merge(t.Context(), store.MergeRequest{Key: takes[0].Key, Keep: time.Hour, Entries: entries})
		},
		"sent again": func(t *testing.T, s core.Store, takes []store.Take) error {
			return s.Take(t.Context(), takes, make([]store.Answer, 2))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := &slowUndo{fails: true}
				s := redisstore.New(client)
				takes := newJointRequest("first", 100, 100).takes(store.ModeCharge)
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				err := s.Take(ctx, slices.Clone(takes), make([]store.Answer, 2))
				if err == nil || client.undoing.Load() == 0 {
					t.Errorf("%v, with no removal on its way", err)
				}
				client.fails = false
				err = record(t, s, takes)
				if undoing := client.undoing.Load(); err != nil || undoing > 0 || !client.undone.Load() {
					t.Errorf("%v; removals: %d on their way, some ended: %v", err, undoing, client.undone.Load())
				}
				time.Sleep(time.Second)
			})
		})
	}
	for range 2 { // which empties pools: their takes have channels of the bubbles, which no other test may use
		runtime.GC()
	}
}

// slowUndo is a client of a server that admits all takes, but fails about the second log of a request, and is slow to
// remove any.
type slowUndo struct {
	fails   bool
	undoing atomic.Int64
	undone  atomic.Bool
}

func (c *slowUndo) EvalSha(ctx context.Context, _ string, keys []string, _ ...any) *redis.Cmd {
	return c.Eval(ctx, "", keys)
}

func (c *slowUndo) Eval(ctx context.Context, script string, keys []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	switch {
	case strings.HasPrefix(script, "-- undo\n"):
		c.undoing.Add(1)
		time.Sleep(time.Second / 2)
		c.undoing.Add(-1)
		c.undone.Store(true)
		cmd.SetVal([]any{int64(0)})
	case script != "":
		cmd.SetVal([]any{int64(1)})
	case c.fails && keys[0] == stored(store.NewKey("first", "log 1")):
		cmd.SetErr(context.DeadlineExceeded)
	default:
		cmd.SetVal([]any{time.Hour.Microseconds() + 1})
	}
	return cmd
}

// hangingKey is a client that does not answer about a key until it resumes.
type hangingKey struct {
	redisstore.Client

	key    string
	resume chan struct{}
}

func (c *hangingKey) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	if keys[0] == c.key {
		<-c.resume
	}
	return c.Client.EvalSha(ctx, sha1, keys, args...)
}

// eventually reports whether condition holds within two seconds.
func eventually(condition func() bool) bool {
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		if condition() {
			return true
		}
	}
	return condition()
}

// A request that was admitted and is decided again keeps its units, whichever log has lost its own since. With a cost,
// its log has a mark and other scores.
func TestJointUndoLeavesWhatWasAdmitted(t *testing.T) {
	for _, cost := range []int{1, 2} {
		c := newClock(start(t))
		s := newStore(c) // asks one log after the other
		r := newJointRequest(fmt.Sprint("again", cost), 9, 9)
		r.plans[1] = planOf(core.Limits{{Quota: cost, Window: time.Second}}, store.Plan{})
		takes := func() []store.Take {
			all := r.takes(store.ModeCharge)
			for i := range all {
				all[i].Cost = cost
			}
			return all
		}
		first, answers := takes(), make([]store.Answer, 2)
		err := coretest.TakeAll(t.Context(), full(s), first, answers)
		if err != nil || !answers[0].Allowed || !answers[1].Allowed {
			t.Fatal(answers, err)
		}
		c.Advance(2 * time.Second)
		other := store.Take{Key: r.keys[1], Plan: r.plans[1], Cost: cost, ID: jointID.Add(1)}
		if a, err := coretest.Take(t.Context(), s, other); err != nil || !a.Allowed {
			t.Fatal(a, err)
		}
		for range 2 {
			if err := coretest.TakeAll(t.Context(), full(s), first, answers); err != nil || answers[1].Allowed {
				t.Fatal(answers, err)
			}
			if used := r.used(t, s); used[0] != cost {
				t.Errorf("the logs hold %v units, want the first to keep its own", used)
			}
		}
		if err = coretest.TakeAll(t.Context(), full(s), takes(), answers); err != nil || answers[1].Allowed {
			t.Fatal(answers, err)
		}
		if used := r.used(t, s); !slices.Equal(used, []int{cost, cost}) {
			t.Errorf("the logs hold %v units after a denial, want %d each", used, cost)
		}
	}
}

// A denial that was recorded has replaced an admitted unit, so it stays when another log fails.
func TestJointUndoLeavesDenials(t *testing.T) {
	client := &refusedKey{Client: start(t)}
	s, r := redisstore.New(client), newJointRequest("denials", 9, 2, 9)
	for i := range 6 {
		client.key = ""
		if i > 1 {
			client.key = stored(r.keys[2])
		}
		if ok, err := r.take(t.Context(), s, store.ModeChargeDenied); ok != (i < 2) || (err == nil) != ok {
			t.Fatalf("request %d: %v, %v", i+1, ok, err)
		}
	}
	client.key = ""
	if used := r.used(t, s); !slices.Equal(used, []int{2, 2, 2}) {
		t.Errorf("the logs hold %v units, want 2 each", used)
	}
}

// refusedKey is a client that cannot ask about a key.
type refusedKey struct {
	redisstore.Client

	key string
}

func (c *refusedKey) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	if keys[0] != c.key {
		return c.Client.EvalSha(ctx, sha1, keys, args...)
	}
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(errRefused)
	return cmd
}

// On one server, a request that was admitted is admitted again, whichever log has lost its unit since, and is recorded
// nowhere a second time.
func TestJointRequestIsAnsweredAgain(t *testing.T) {
	for name, long := range map[string]core.Limits{
		"short form": {core.PerHour(9)}, "long form": {core.PerHour(9), core.PerDay(1)},
	} {
		c := newClock(start(t))
		s := redisstore.Single(newStore(c))
		r := newJointRequest("again", 9, 9, 9)
		r.plans[0] = planOf(long, store.Plan{Shadow: len(long) - 1})
		r.plans[1] = planOf(core.Limits{{Quota: 1, Window: time.Second}}, store.Plan{})
		first, answers := r.takes(store.ModeCharge), make([]store.Answer, 3)
		for again := range 3 {
			if err := coretest.TakeAll(t.Context(), full(s), first, answers); err != nil {
				t.Fatal(err)
			}
			for i, a := range answers {
				if !a.Allowed || a.Retry != 0 {
					t.Errorf("%s, sent again %d times: log %d answers %+v", name, again, i, a)
				}
			}
			if used := r.used(t, s); !slices.Equal(used, []int{1, 1, 1}) {
				t.Errorf("%s, sent again %d times: the logs hold %v units, want 1 each", name, again, used)
			}
			if again == 0 {
				c.Advance(2 * time.Second)
				other := store.Take{Key: r.keys[1], Plan: r.plans[1], Cost: 1, ID: jointID.Add(1)}
				if a, err := coretest.Take(t.Context(), s, other); err != nil || !a.Allowed {
					t.Fatal(a, err)
				}
			}
		}
	}
}

// A request for up to so many units that is sent again gets what it got before, also if there is room for more by now.
func TestJointGrantsAgainWhatWasGranted(t *testing.T) {
	c := newClock(start(t))
	s, keys := redisstore.Single(newStore(c)), keysOf(t, 2, "grants")
	plan := planOf(core.Limits{{Quota: 8, Window: 10 * time.Second}}, store.Plan{})
	ask := func(id uint64, mode store.Mode) int {
		t.Helper()
		takes, answers := make([]store.Take, 2), make([]store.Answer, 2)
		for i := range takes {
			takes[i] = store.Take{Key: keys[i], Plan: plan, Cost: 5, ID: id, Mode: mode}
		}
		if err := coretest.TakeAll(t.Context(), s, takes, answers); err != nil {
			t.Fatal(err)
		}
		return answers[0].Granted
	}
	ask(1, store.ModeCharge)
	c.Advance(5 * time.Second)
	for range 2 {
		if n := ask(2, store.ModeUpTo); n != 3 {
			t.Errorf("%d units granted, want 3", n)
		}
		c.Advance(5 * time.Second) // the first request has left
	}
}

// What is sent again so late that windows have passed is answered as a whole: with all logs, or with one that denies.
func TestJointLateReplays(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	c := &late{clock: newClock(start(t)), r: r}
	logs := redisstore.Single(newStore(c))
	for i, limits := range [][]core.Limits{
		{{{Quota: 5, Window: time.Second}}, {{Quota: 2, Window: time.Millisecond}}},
		{
			{{Quota: 3, Window: 100 * time.Millisecond}, {Quota: 12, Window: 5 * time.Second}},
			{{Quota: 4, Window: 500 * time.Millisecond}},
		},
	} {
		var plans []*store.Plan
		for _, l := range limits {
			plans = append(plans, planOf(l, store.Plan{Bound: 12}))
		}
		for _, mode := range []store.Mode{store.ModeCharge, store.ModePeek, store.ModeRecord, store.ModeChargeDenied} {
			keys := keysOf(t, 4, fmt.Sprintf("late.%d.%d", i, mode))
			for round := range 300 {
				var batch [][]store.Take
				n, cost := r.IntN(2), 1+max(0, r.IntN(5)-2)
				for range 1 + r.IntN(6) {
					id := jointID.Add(1)
					batch = append(batch, []store.Take{
						{Key: keys[n], Plan: plans[0], Cost: cost, ID: id, Mode: mode},
						{Key: keys[2+r.IntN(2)], Plan: plans[1], Cost: cost, ID: id, Mode: mode},
					})
					if mode == store.ModeChargeDenied { // these never go together
						break
					}
				}
				c.again = r.IntN(2) == 0
				answers, err := redisstore.TakeAllTogether(t.Context(), logs, batch)
				if err != nil {
					t.Fatalf("%v, mode %d, round %d, sent again %v after %v: %v",
						limits, mode, round, c.again, c.after, err)
				}
				for j, all := range answers {
					for _, a := range all {
						if a.Allowed && a.Retry != 0 || a.Retry < 0 {
							t.Errorf("%v, mode %d, round %d, request %d: %+v", limits, mode, round, j, a)
						}
					}
				}
				c.again = false
				for k, key := range keys {
					p := plans[k/2]
					a, err := coretest.Take(t.Context(), logs, store.Take{
						Key: key, Plan: p, Cost: 1, ID: 1, Mode: store.ModePeek,
					})
					if err != nil || mode == store.ModeCharge && a.State[0].Used > p.Limits[0].Quota {
						t.Fatalf("%v, round %d: %d units in log %d, %v", p.Limits, round, a.State[0].Used, k, err)
					}
				}
				c.Advance(time.Duration(r.IntN(300_000)) * time.Microsecond)
			}
		}
	}
}

// A clock that steps back leaves entries from the future, which keep others out for one window at most.
func TestJointClockStepsBack(t *testing.T) {
	for name, limits := range map[string]core.Limits{
		"one limit": {{Quota: 5, Window: time.Minute}}, "two": {core.PerSecond(100), {Quota: 5, Window: time.Minute}},
		"long": {{Quota: 5, Window: time.Minute}, {Quota: 1, Window: time.Second}},
	} {
		for _, filled := range []int{3, 5} {
			t.Run(fmt.Sprint(name, filled), func(t *testing.T) {
				c := newClock(start(t))
				s := redisstore.Single(newStore(c))
				r := newJointRequest("steps", 1000, 1000)
				shadow := 0
				if name == "long" {
					shadow = 1
				}
				r.plans[1] = planOf(limits, store.Plan{Shadow: shadow})
				admitted := func() (n int) {
					for range 8 {
						ok, err := r.take(t.Context(), s, store.ModeCharge)
						if err != nil {
							t.Fatal(err)
						}
						if ok {
							n++
						}
					}
					return n
				}
				for range filled {
					if ok, err := r.take(t.Context(), s, store.ModeCharge); !ok || err != nil {
						t.Fatal(err)
					}
				}
				c.Advance(-time.Hour)
				if n := admitted(); n != 5-filled {
					t.Errorf("%d admitted after the step, want the %d that were left", n, 5-filled)
				}
				c.Advance(time.Minute + store.LongestLease)
				if n := admitted(); n != 5 {
					t.Errorf("%d admitted a window later, want 5", n)
				}
				if used := r.used(t, s); used[0] != 10 {
					t.Errorf("the other log holds %d units, want 10", used[0])
				}
			})
		}
	}
}

// Only the newest units are from the future, and not the one that decides.
func TestJointClockStepsBackUnderTwoLimits(t *testing.T) {
	c := newClock(start(t))
	s := redisstore.Single(newStore(c))
	r := newJointRequest("two", 1000, 1000)
	r.plans[1] = planOf(core.Limits{core.PerSecond(5), core.PerHour(1000)}, store.Plan{})
	stepsBack(t, c, func() (bool, error) { return r.take(t.Context(), s, store.ModeCharge) })
}

func TestJointOddReplies(t *testing.T) {
	for _, reply := range []any{
		nil, "OK", int64(1), []any{}, numbers(0), numbers(0, 1), numbers(5), numbers(5, 5, 5), numbers(5, 0),
		numbers(5, -5),
		numbers(1, 5), numbers(1<<62, 5), numbers(0, 1, 1, 0, 0, 5), numbers(0, 2, 1, 0, 0, 5, 1, 0, 0, 5),
		numbers(0, -1, 1, 0, 0, 5, 1, 0, 0, 5), numbers(0, 0, 1, 0, 0, 5, 1, 0, 0, 5),
		numbers(0, 1, 1, 0, 0, 5, 0, 5, 9, 5),
		numbers(0, 1, 0, 5, 0, 5, 1, 0, 0, 5), numbers(0, 1, 1, 5, 0, 5, 1, 0, 0, 5),
		numbers(0, 1, 1, 0, 0, -5, 1, 0, 0, 5),
		numbers(0, 1, 1, 0, 0, 5, 1, 0, 1<<53, 5), numbers(0, 0, 0, -2, 5, 5, 1, 0, 0, 5),
		errors.New("ERR broken"), redis.Nil,
	} {
		s := redisstore.Single(redisstore.New(odd{reply}))
		ok, err := newJointRequest("odd", 5, 7).take(t.Context(), s, store.ModeCharge)
		var failure *store.StoreError
		if !errors.As(err, &failure) || ok || failure.Class == "" {
			t.Errorf("reply %v: %v, %v; want a StoreError", reply, ok, err)
		}
	}
	s := redisstore.Single(redisstore.New(odd{numbers(0, 1, 1, 0, 0, 5, 1, 0, 0, 5)}))
	if ok, err := newJointRequest("odd", 5, 7).take(t.Context(), s, store.ModeCharge); !ok || err != nil {
		t.Errorf("a good reply: %v, %v", ok, err)
	}
}

func TestJointRefusals(t *testing.T) {
	rdb := start(t)
	for _, s := range []core.Store{redisstore.New(rdb), redisstore.New(anyClient{rdb})} { // in one step, and in turn
		jointRefusals(t, full(s))
	}
}

func jointRefusals(t *testing.T, s store.Full) {
	t.Helper()
	r, large := newJointRequest("refused", 100_000, 20), tooMuch(t)
	var config *store.ConfigError
	ask := func(cost int, change func([]store.Take)) error {
		takes := r.takes(store.ModeCharge)
		for i := range takes {
			takes[i].Cost = cost
		}
		change(takes)
		return coretest.TakeAll(t.Context(), s, takes, make([]store.Answer, len(takes)))
	}
	none := func([]store.Take) {}
	for name, err := range map[string]error{
		"no takes": coretest.TakeAll(t.Context(), s, nil, nil),
		"other cost": ask(1, func(t []store.Take) {
			t[0].Mode, t[1].Mode, t[1].Cost = store.ModeUpTo, store.ModeUpTo, 2
		}),
		"other id":              ask(1, func(t []store.Take) { t[1].ID++ }),
		"too large":             ask(large, none),
		"too large for one log": ask(1, func(t []store.Take) { t[1].Cost = large }),
	} {
		if !errors.As(err, &config) {
			t.Errorf("%s: %v, want a ConfigError", name, err)
		}
	}
	if err := ask(core.MaxQuota, none); err != nil { // which one quota never admits
		t.Error(err)
	}
	if used := r.used(t, s); !slices.Equal(used, []int{0, 0}) {
		t.Errorf("the logs hold %v units", used)
	}
}

// A caller is back at its own deadline, and one that waits in vain for its turn is not sent.
func TestJointDeadlines(t *testing.T) {
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	for name, s := range map[string]core.Store{
		"prompt":     redisstore.New(rdb),
		"not prompt": redisstore.Single(redisstore.New(anyClient{rdb})),
		"in turn":    redisstore.New(anyClient{rdb}),
	} {
		t.Run(name, func(t *testing.T) {
			r := newJointRequest("deadlines-"+name[:3], 1000, 1000)
			if ok, err := r.take(t.Context(), s, store.ModeCharge); !ok || err != nil {
				t.Fatal(err)
			}
			clock := timerlag.Watch()
			server.Pause()
			var wg sync.WaitGroup
			var worst atomic.Int64
			for range 100 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
					defer cancel()
					begin := time.Now()
					if _, err := r.take(ctx, s, store.ModeCharge); classOf(err) != redisstore.ClassTimeout {
						t.Errorf("%v, from a server that stands still", err)
					}
					for took := int64(time.Since(begin)); ; {
						if before := worst.Load(); took <= before || worst.CompareAndSwap(before, took) {
							return
						}
					}
				})
			}
			wg.Wait()
			server.Resume()
			clock.Stop()
			if worst := time.Duration(worst.Load()); worst > time.Second+clock.Slack() {
				t.Errorf("a caller with 50ms waited for %v, and a timer was late by up to %v", worst, clock.Worst())
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := r.take(ctx, s, store.ModeCharge); classOf(err) != redisstore.ClassCanceled {
				t.Errorf("of a caller who has left: %v", err)
			}
		})
	}
}

func classOf(err error) string {
	if failure := new(store.StoreError); errors.As(err, &failure) {
		return failure.Class
	}
	return ""
}
