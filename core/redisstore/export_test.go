package redisstore

import (
	"context"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/internal/redisclient"
	"github.com/sashlimit/sash/core/store"
)

// The functions about takes are for stores of package redisstream as well.

// TakeTogether sends takes of one policy as one batch: in one script if single, in one pipeline if not.
func TakeTogether(ctx context.Context, s core.Store, single bool, takes []store.Take) ([]store.Answer, error) {
	redisclient.LogsOf(s).Conn.Single = single
	requests := make([][]store.Take, len(takes))
	for i := range takes {
		requests[i] = takes[i : i+1]
	}
	all, err := TakeAllTogether(ctx, s, requests)
	answers := make([]store.Answer, len(all))
	for i := range all {
		answers[i] = all[i][0]
	}
	return answers, err
}

// TakeAllTogether sends requests over several logs as one batch, as TakeTogether does.
func TakeAllTogether(ctx context.Context, s core.Store, requests [][]store.Take) ([][]store.Answer, error) {
	return redisclient.LogsOf(s).TakeTogether(ctx, requests)
}

// Variant returns the text of a script in which some of the files that it includes have other contents.
func Variant(text string, contents map[string]string) string {
	name, ok := scriptNames()[text]
	if !ok {
		return text // it is of another package
	}
	return redisclient.Assemble(variant{parts, contents}, name)
}

// scriptNames returns the names of all Lua files by their texts.
var scriptNames = sync.OnceValue(func() map[string]string {
	files, err := fs.Glob(parts, "lua/*.lua")
	if err != nil {
		panic(err)
	}
	names := make(map[string]string)
	for _, file := range files {
		name := strings.TrimSuffix(path.Base(file), ".lua")
		names[redisclient.Assemble(parts, name)] = name
	}
	return names
})

// variant is a folder of which some files have other contents.
type variant struct {
	fs.ReadFileFS

	contents map[string]string
}

func (v variant) ReadFile(file string) ([]byte, error) {
	if text, ok := v.contents[strings.TrimSuffix(path.Base(file), ".lua")]; ok {
		return []byte(text), nil
	}
	return v.ReadFileFS.ReadFile(file)
}

// PartOf returns the content of a file that scripts include.
func PartOf(name string) string {
	files, err := fs.Glob(parts, "lua/*.lua")
	for _, file := range files {
		text, _ := parts.ReadFile(file)
		if err == nil && strings.Contains(string(text), "-- include "+name+"\n") {
			part, _ := parts.ReadFile("lua/" + name + ".lua")
			return string(part)
		}
	}
	panic("no script includes " + name)
}

// Assembled returns the text of a Lua file as it runs.
func Assembled(name string) string { return redisclient.Assemble(parts, name) }

// WithProcess has a store give commands to process, but those that reply with texts, of overrides, to its client.
func WithProcess(s core.Store, process func(context.Context, redis.Cmder) error) core.Store {
	c := redisclient.LogsOf(s).Conn
	c.Process = func(ctx context.Context, cmd redis.Cmder) error {
		texts, ok := cmd.(*redis.StringSliceCmd)
		if !ok {
			return process(ctx, cmd)
		}
		run := c.EvalSha
		if cmd.Name() == "eval" {
			run = c.Eval
		}
		args := cmd.Args()
		reply, err := run(ctx, args[1].(string), []string{args[3].(string)}, args[4:]...).StringSlice()
		texts.SetVal(reply)
		texts.SetErr(err)
		return err
	}
	return Patient(s)
}

// Patient has a store remove units for up to a minute: what was not removed in time would differ from an oracle's log.
func Patient(s core.Store) core.Store {
	if s, ok := s.(*redisStore); ok {
		s.undoTimeout = time.Minute
	}
	return s
}

// Single has a store use one script for several keys, as it does for a *redis.Client.
func Single(s core.Store) core.Store {
	redisclient.LogsOf(s).Conn.Single = true
	return s
}

// Batches returns the batches in which takes of one policy leave that wait at the same time, as indexes of takes.
func Batches(ctx context.Context, s core.Store, takes []store.Take) (batches [][]int) {
	return redisclient.LogsOf(s).Queue(ctx, takes)
}

// DialsAfterClose reports whether a pool of this go-redis goes on dialling after its client is closed, and the store
// cannot know that it is.
func DialsAfterClose() bool { return redisclient.Redials && redisclient.ClonesKeepHooks() }

// ClonesKeepHooks reports whether the store's client is a clone with the hooks that were there when it was made.
func ClonesKeepHooks() bool { return redisclient.ClonesKeepHooks() }

// TakeText and JointText are the scripts of takes and of requests over several logs.
var TakeText, JointText = takeScript.Text(), jointScript.Text()

// TakeSeveralText and JointSeveralText are those of several limits, TakeWeightedText and JointWeightedText those of
// logs with marks.
var TakeSeveralText, JointSeveralText = takeSeveralScript.Text(), jointSeveralScript.Text()

var TakeWeightedText, JointWeightedText = takeWeightedScript.Text(), jointWeightedScript.Text()

// TakeVariedText is that of takes whose windows vary.
var TakeVariedText = takeVariedScript.Text()

// BookText is the script of bookings.
var BookText = bookScript.Text()
