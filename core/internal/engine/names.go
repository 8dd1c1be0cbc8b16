package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/sashlimit/sash/core/internal/limittext"
	"github.com/sashlimit/sash/core/store"
)

// The names of logs. A log keeps what was used when limits change, so its name has only what tells it from others:
// whose it is, its window, unit and algorithm, and never a quota. See [store.Key.String] and [store.Limit.Log].

// shadowMark ends the name of a policy that is tried out. Users cannot write it.
const shadowMark = "~shadow"

// logID names a log, for maps.
type logID struct {
	namespace *store.Namespace
	identity  store.Identity
	log       string
}

// namespace returns the namespace of a part of a rule's logs, the same one while it is remembered.
func (e *Engine) namespace(r *Rule, part string) *store.Namespace {
	policy := r.Name
	if r.Shadow {
		policy += shadowMark
	}
	if r.Label != "" {
		part += "~" + r.Label
	}
	return e.namespaces.get(policy+":"+part, func() *store.Namespace {
		return store.NewNamespace(strings.Clone(policy), strings.Clone(part), e.config.Secret)
	})
}

const (
	longestLabel = 32
	hashLength   = 8
)

// Fit returns a text as a part of names, or a hash of it.
func Fit(text string) string {
	const allowed = "abcdefghijklmnopqrstuvwxyz0123456789._-"
	if len(text) <= longestLabel && strings.Trim(text, allowed) == "" {
		return text
	}
	return hash(text)
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:hashLength])
}

// logName names the log of a limit whose numbers l has: its algorithm and window, and its unit.
func logName(l *store.Limit, text *limittext.Limit) (name string) {
	switch {
	case l.Permits:
		return "in-flight"
	case text.Calendar.IsSet():
		name = text.Calendar.Unit().String()
		if text.Calendar.String() != name { // it has a zone or an anchor
			name += "-" + hash(text.Calendar.ID())
		}
	default:
		name = windowName(l)
	}
	if text.Unit != "" {
		name += "." + text.Unit
	}
	return name
}

func windowName(l *store.Limit) (name string) {
	switch l.Algorithm {
	case store.SlidingLog:
		name = l.Window.String()
	case store.FixedWindow:
		name = "fixed-" + l.Window.String()
	case store.SlidingCounter:
		name = "counter-" + l.Window.String()
	case store.TokenBucket:
		name = "bucket-" + strconv.FormatInt(l.Interval(), 10) + "ns"
	}
	return name
}
