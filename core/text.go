package core

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/sashlimit/sash/core/internal/plan"
)

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

func appendTrue(attrs []slog.Attr, name string, value bool) []slog.Attr {
	if value {
		attrs = append(attrs, slog.Bool(name, true))
	}
	return attrs
}

// format writes text for any verb. %q quotes it; width and precision apply as for %s.
func format(f fmt.State, verb rune, text string) {
	if verb != 'q' {
		verb = 's'
	}
	fmt.Fprintf(f, fmt.FormatString(f, verb), text)
}

// textOf returns limits as users write them.
func textOf(limits []plan.Limit) string {
	texts := make([]string, len(limits))
	for i := range limits {
		texts[i] = limits[i].Text
	}
	return strings.Join(texts, ",")
}
