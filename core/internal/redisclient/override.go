package redisclient

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/sashlimit/sash/core/store"
)

var override, overrides = LoadScript(shared, "override"), LoadScript(shared, "overrides")

func (c *Conn) overridesKey(policy string) []string {
	return []string{c.prefix + ":overrides:" + policy}
}

// SetOverride implements [store.Overrider].
func (c *Conn) SetOverride(ctx context.Context, policy string, o store.Override) error {
	extend := ""
	if o.Extend {
		extend = "e"
	}
	reply, err := c.Run(ctx, override, c.overridesKey(policy), strconv.FormatUint(rand.Uint64(), 36), o.Name,
		o.Value, o.Until.UnixMilli(), time.Now().UnixMilli(), o.Most(), extend)
	if err == nil && len(reply) == 1 && reply[0] == 0 {
		err = store.TooManyOverrides(policy, &o)
	}
	return err
}

// Overrides implements [store.Overrider].
func (c *Conn) Overrides(
	ctx context.Context, policy, known string,
) (version string, all []store.Override, err error) {
	var reply []string
	err = c.until(ctx, func() (err error) {
		ctx := context.WithoutCancel(ctx) // which a client could close its connection for
		reply, err = c.client.Eval(ctx, overrides.Text(), c.overridesKey(policy), known).StringSlice()
		return err
	})
	if err != nil {
		return "", nil, err
	}
	if len(reply) < 2 {
		return strings.Join(reply, ""), nil, nil
	}
	for i := 1; i < len(reply); i += 2 {
		name, text := reply[i-1], reply[i]
		if name == "" {
			version = text
			continue
		}
		end, value, _ := strings.Cut(text, " ")
		end, extend := strings.CutSuffix(end, "e")
		until, err := strconv.ParseInt(end, 10, 64)
		if err != nil {
			return "", nil, ProtocolError("an override that does not begin with its end")
		}
		all = append(all, store.Override{Name: name, Value: value, Until: time.UnixMilli(until), Extend: extend})
	}
	return version, all, nil
}
