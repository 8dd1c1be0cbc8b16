package core

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/sashlimit/sash/core/internal/errtypes"
	"github.com/sashlimit/sash/core/store"
)

// Types that may be logged by accident print one line without identities, whatever the verb. Otherwise package fmt
// would print the fields of a store.Key within them, addresses and texts included, even with WithSecret. To get the
// identity, use Event.Key or store.Key.String.

// String describes the decision in one line, without the key of the request.
func (d Decision) String() string { return line("Decision", d.attrs()) }

// Format implements [fmt.Formatter]: every verb prints String.
func (d Decision) Format(f fmt.State, verb rune) { format(f, verb, d.String()) }

// LogValue implements [slog.LogValuer] with the attributes that String prints.
func (d Decision) LogValue() slog.Value { return slog.GroupValue(d.attrs()...) }

func (d *Decision) attrs() []slog.Attr {
	attrs := make([]slog.Attr, 0, 10)
	if d.Policy != "" {
		attrs = append(attrs, slog.String("policy", d.Policy))
	}
	attrs = append(attrs, slog.Bool("allowed", d.Allowed), slog.Int("remaining", d.Remaining), slog.Int("used", d.Used),
		slog.Duration("retry_after", d.RetryAfter.Round(time.Microsecond)),
		slog.Duration("reset_after", d.ResetAfter.Round(time.Microsecond)))
	if d.result.Mode == store.ModeAtMost {
		attrs = append(attrs, slog.Int("granted", d.Granted))
	}
	if len(d.Violated) > 0 {
		attrs = append(attrs, slog.String("violated", strings.Join(d.Violated, ",")))
	}
	if d.Overridden != nil {
		attrs = append(attrs, slog.String("override", d.Overridden.Kind()))
	}
	if d.Banned {
		attrs = append(attrs, slog.Bool("banned", true))
	}
	if d.Degraded {
		attrs = append(attrs, slog.Bool("degraded", true))
	}
	return attrs
}

// String describes the event in one line, without Key and without the text of Err, which may hold an identity.
func (e Event) String() string { return line("Event", e.attrs()) }

// Format implements [fmt.Formatter]: every verb prints String.
func (e Event) Format(f fmt.State, verb rune) { format(f, verb, e.String()) }

// LogValue implements [slog.LogValuer] with the attributes that String prints.
func (e Event) LogValue() slog.Value { return slog.GroupValue(e.attrs()...) }

func (e *Event) attrs() []slog.Attr {
	attrs := make([]slog.Attr, 0, 9)
	attrs = append(attrs, slog.String("policy", e.Policy), slog.String("outcome", e.Outcome.String()),
		slog.String("source", e.Source.String()), slog.String("mode", e.Mode.String()), slog.Int("cost", e.Cost),
		slog.Duration("took", e.Took.Round(time.Microsecond)))
	if d := &e.Decision; e.Err == nil || d.Allowed || d.Policy != "" { // otherwise there is only the error
		attrs = append(attrs, slog.Any("decision", slog.GroupValue(d.attrs()...)))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", errtypes.Of(e.Err)))
	}
	if e.Shadow != nil {
		attrs = append(attrs, slog.Any("shadow", slog.GroupValue(e.Shadow.attrs()...)))
	}
	return attrs
}

// Format implements [fmt.Formatter]: every verb prints Error.
func (e LimitedError) Format(f fmt.State, verb rune) { format(f, verb, e.Error()) }

// String describes the limiter in one line, without the entries of its lists.
func (l Limiter) String() string { return line("Limiter", l.attrs()) }

// Format implements [fmt.Formatter]: every verb prints String.
func (l Limiter) Format(f fmt.State, verb rune) { format(f, verb, l.String()) }

// LogValue implements [slog.LogValuer] with the attributes that String prints.
func (l Limiter) LogValue() slog.Value { return slog.GroupValue(l.attrs()...) }

// limitsText returns the limits, or how they are chosen.
func (l *Limiter) limitsText() string {
	switch {
	case l.gate.Rules != nil:
		return ""
	case l.gate.Policy.Set == nil:
		return "LimitBy"
	}
	return l.gate.Policy.Set.Text()
}

func (l *Limiter) attrs() []slog.Attr {
	if l.engine == nil {
		return nil
	}
	return []slog.Attr{
		slog.String("policy", l.policy()),
		slog.String("limits", l.limitsText()),
		slog.String("store", fmt.Sprintf("%T", l.store)),
	}
}

// line formats a name and attributes as text: Name{key=value key=value}.
func line(name string, attrs []slog.Attr) string {
	return string(append(appendAttrs(append([]byte(name), '{'), attrs), '}'))
}

func appendAttrs(b []byte, attrs []slog.Attr) []byte {
	for i, a := range attrs {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(append(b, a.Key...), '=')
		if a.Value.Kind() == slog.KindGroup {
			b = append(appendAttrs(append(b, '{'), a.Value.Group()), '}')
			continue
		}
		text := a.Value.String()
		if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == '"' || r == 0x7f }) {
			b = strconv.AppendQuote(b, text)
			continue
		}
		b = append(b, text...)
	}
	return b
}

// format writes text for any verb. %q quotes it; width and precision apply as for %s.
func format(f fmt.State, verb rune, text string) {
	if verb != 'q' {
		verb = 's'
	}
	fmt.Fprintf(f, fmt.FormatString(f, verb), text)
}
