package redisstore_test

import (
	"context"
	"crypto/sha1" //nolint:gosec // the name that Redis gives a script
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// hashed sends scripts by their hash as soon as a server knows them.
type hashed struct {
	processor

	hashes *texts
}

func newHashed(c processor) hashed { return hashed{c, new(texts)} }

// texts maps scripts to texts. It is no map, because hashing a script takes longer than comparing it with itself.
type texts struct {
	mu       sync.Mutex
	from, to []string
}

func (m *texts) load(from string) (to string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(m.from, from); i >= 0 {
		return m.to[i], true
	}
	return "", false
}

func (m *texts) store(from, to string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.from, m.to = append(m.from, from), append(m.to, to)
}

func (c hashed) Process(ctx context.Context, cmd redis.Cmder) error {
	args := slices.Clone(cmd.Args())
	text, _ := args[1].(string)
	if args[0] != "eval" {
		return c.processor.Process(ctx, cmd)
	}
	hash, known := c.hashes.load(text)
	if known {
		args[0], args[1] = "evalsha", hash
	}
	command := redis.NewIntSliceCmd(ctx, args...)
	err := c.processor.Process(ctx, command)
	if known && redis.HasErrorPrefix(err, "NOSCRIPT") { // one of several servers
		args[0], args[1] = "eval", text
		command = redis.NewIntSliceCmd(ctx, args...)
		err = c.processor.Process(ctx, command)
	}
	cmd.(*redis.IntSliceCmd).SetVal(command.Val())
	cmd.SetErr(err)
	if err == nil && !known {
		sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
		c.hashes.store(text, hex.EncodeToString(sum[:]))
	}
	return err
}

// paths counts by which path of take.lua each log's answer has come. The arguments tell what was asked, and the
// reply's form whether a short path has answered: a number for each limit, or a zero and the whole answer.
type paths struct {
	processor

	mu    sync.Mutex
	count map[string]int
}

func newPaths(c processor) *paths { return &paths{processor: c, count: make(map[string]int)} }

func (p *paths) Process(ctx context.Context, cmd redis.Cmder) error {
	err := p.processor.Process(ctx, cmd)
	args := cmd.Args()
	if err != nil || args[0] != "eval" || !takes(cmd) {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := args[2].(int)
	logs := n - 2 // but for the clock's
	ids, rest := args[3+n:3+n+logs], args[3+n+logs:]
	reply := cmd.(*redis.IntSliceCmd).Val()
	if !isShortForm(rest[0]) {
		path := fmt.Sprint("mode ", rest[0])
		if deciding := rest[3].(int); 5+2*deciding < len(rest) {
			path += ", shadow"
		}
		p.count[path] += logs
		return nil
	}
	kind, limits := kindOf(rest[0]), (len(rest)-1)/2
	for _, id := range ids {
		if reply[0] == 0 && reply[1] == -1 {
			p.count[kind+"plain: a log with weights"]++
			reply = reply[2:]
			continue
		}
		if reply[0] == 0 {
			p.count[kind+"plain: "+whyLong(id)]++
			reply = reply[1+2+2*limits:]
			continue
		}
		verdict := "admits"
		if slices.Min(reply[:limits]) < 0 {
			verdict = "denies"
		}
		switch {
		case len(idOf(id)) > 8:
			p.count[kind+"a cost "+verdict]++
		case limits == 1:
			p.count[kind+"one limit "+verdict]++
		default:
			p.count[kind+"several limits "+verdict]++
		}
		reply = reply[limits:]
	}
	return nil
}

func idOf(arg any) string {
	if text, ok := arg.(*string); ok {
		return *text
	}
	return arg.(string)
}

// whyLong is why a plain question about a log has had a whole answer.
func whyLong(id any) string {
	text := idOf(id)
	switch {
	case len(text)%8 != 0:
		return "a cost"
	case len(text) > 8:
		return "takes of one log"
	}
	return "an odd log" // it varies, holds more than a quota or entries from the future, or the take was there already
}

// tracedPaths are those that random traces have to take, and how often at least in 100,000 checks: about a third of
// what they do.
var tracedPaths = map[string]int{
	"one limit admits":      3000,
	"one limit denies":      1200,
	"several limits admits": 2000,
	"several limits denies": 1200,
	"plain: a cost":         3000,
	"plain: an odd log":     600,
	"mode c, shadow":        5000,
	"mode d":                1500,
	"mode d, shadow":        800,
	"mode p, shadow":        1500,
	"mode r":                200,
	"mode r, shadow":        100,
	"mode vc, shadow":       400,

	"peek, one limit admits":      400,
	"peek, one limit denies":      150,
	"peek, several limits admits": 1500,
	"peek, several limits denies": 150,
	"peek, plain: an odd log":     1500,

	"varied, one limit admits":      70,
	"varied, one limit denies":      70,
	"varied, several limits admits": 70,
	"varied, several limits denies": 70,
	"varied, plain: a cost":         200,
	"varied, plain: an odd log":     500,
}

// few reports whether one of these paths has answered less often.
func (p *paths) few(least map[string]int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for path, n := range least {
		if p.count[path] < n {
			return true
		}
	}
	return false
}

// want fails the test unless each of these paths has answered so often at least.
func (p *paths) want(t *testing.T, least map[string]int) {
	t.Helper()
	for _, path := range slices.Sorted(maps.Keys(p.count)) {
		t.Logf("%6d by %s", p.count[path], path)
	}
	for path, n := range least {
		if p.count[path] < n {
			t.Errorf("%d answers by %s, want at least %d", p.count[path], path, n)
		}
	}
}
