package store

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
)

// Types that may be logged by accident print no identities, whatever the verb: fmt would print a Key field by field,
// also under a secret. Key.String and Identity.Label return the identity.

// String describes the take in one line, without the identity.
func (t Take) String() string { return line("Take", t.LogValue()) }

// Format implements [fmt.Formatter]: every verb prints String.
func (t Take) Format(f fmt.State, verb rune) { format(f, verb, t.String()) }

// LogValue implements [slog.LogValuer] with the attributes that String prints.
func (t Take) LogValue() slog.Value {
	attrs := t.Key.attrs()
	if t.Plan != nil {
		attrs = append(attrs, slog.Any("limits", t.Plan.Limits))
	}
	return slog.GroupValue(append(attrs, slog.Int("cost", t.Cost), slog.Int("mode", int(t.Mode)))...)
}

// String describes the settlement in one line, without the identity.
func (s Settlement) String() string { return line("Settlement", s.LogValue()) }

// Format implements [fmt.Formatter]: every verb prints String.
func (s Settlement) Format(f fmt.State, verb rune) { format(f, verb, s.String()) }

// LogValue implements [slog.LogValuer] with the attributes that String prints.
func (s Settlement) LogValue() slog.Value {
	return slog.GroupValue(append(s.Key.attrs(), slog.Int("cost", s.Cost))...)
}

// String describes the request in one line, without the identity.
func (m MergeRequest) String() string { return line("MergeRequest", m.LogValue()) }

// Format implements [fmt.Formatter]: every verb prints String.
func (m MergeRequest) Format(f fmt.State, verb rune) { format(f, verb, m.String()) }

// LogValue implements [slog.LogValuer] with the attributes that String prints.
func (m MergeRequest) LogValue() slog.Value {
	return slog.GroupValue(append(m.Key.attrs(), slog.Int("entries", len(m.Entries)), slog.Duration("keep", m.Keep))...)
}

// Format implements [fmt.Formatter]. The verbs %v, %s, %q and %x without a flag print String, which is the log's name
// in a store; all others, %+v and %#v among them, print the key's policy and kind, but not the identity.
func (k Key) Format(f fmt.State, verb rune) {
	if strings.ContainsRune("vsqxX", verb) && !f.Flag('+') && !f.Flag('#') {
		fmt.Fprintf(f, fmt.FormatString(f, verb), k.String())
		return
	}
	format(f, verb, line("Key", k.LogValue()))
}

// LogValue implements [slog.LogValuer] with the key's policy and kind.
func (k Key) LogValue() slog.Value { return slog.GroupValue(k.attrs()...) }

// MarshalJSON implements [json.Marshaler] with the key's policy and kind.
func (k Key) MarshalJSON() ([]byte, error) {
	policy := ""
	if k.Namespace != nil {
		policy = k.Namespace.name
	}
	return json.Marshal(map[string]string{"policy": policy, "kind": k.Kind})
}

func (k *Key) attrs() []slog.Attr {
	attrs := make([]slog.Attr, 0, 5)
	if k.Namespace != nil {
		attrs = append(attrs, slog.String("policy", k.Namespace.name))
	}
	return append(attrs, slog.String("kind", k.Kind))
}

// line is a name and a group of attributes as text: Name[key=value key=value].
func line(name string, group slog.Value) string { return name + group.String() }

// format writes text for any verb; %q quotes it, and width and precision hold as for %s.
func format(f fmt.State, verb rune, text string) {
	if verb != 'q' {
		verb = 's'
	}
	fmt.Fprintf(f, fmt.FormatString(f, verb), text)
}
