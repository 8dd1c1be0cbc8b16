package redisclient

import (
	"context"
	"embed"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/sashlimit/sash/core/store"
)

//go:embed lua
var scripts embed.FS

var overrideScript, overridesScript = NewScript(scripts, "override"), NewScript(scripts, "overrides")

func (l *Logs) overridesKey(policy string) string {
	return l.prefix + l.kind.Begin + "overrides:" + policy
}

// SetOverride implements [store.Overrider].
func (l *Logs) SetOverride(ctx context.Context, policy string, o store.Override) error {
	extend := ""
	if o.Extend {
		extend = "e"
	}
	reply, err := l.RunOn(ctx, overrideScript, l.overridesKey(policy), strconv.FormatUint(rand.Uint64(), 36), o.Name,
		o.Value, o.Until.UnixMilli(), time.Now().UnixMilli(), o.Most(), extend)
	if err == nil && len(reply) == 1 && reply[0] == 0 {
		err = store.TooManyOverrides(policy, &o)
	}
	return err
}

// Overrides implements [store.Overrider].
func (l *Logs) Overrides(
	ctx context.Context, policy, known string,
) (version string, all []store.Override, err error) {
	q := newCall(overridesScript, 1, 1)
	q.wantsTexts = true
	if err = l.run(ctx, &q, l.overridesKey(policy), known); err != nil {
		return "", nil, err
	}
	if len(q.texts) < 2 {
		return strings.Join(q.texts, ""), nil, nil
	}
	for i := 1; i < len(q.texts); i += 2 {
		name, text := q.texts[i-1], q.texts[i]
		if name == "" {
			version = text
			continue
		}
		end, value, _ := strings.Cut(text, " ")
		end, extend := strings.CutSuffix(end, "e")
		until, err := strconv.ParseInt(end, 10, 64)
		if err != nil {
			return "", nil, l.Failed(ProtocolError("an override that does not begin with its end"))
		}
		all = append(all, store.Override{Name: name, Value: value, Until: time.UnixMilli(until), Extend: extend})
	}
	return version, all, nil
}
