package store

import (
	"encoding/json"
	"fmt"
	"log/slog"
)

// Types that may be logged by accident print no identities, whatever the verb: fmt would print a Key field by field,
// also under a secret. fmt finds Format in types that hold a Key, too. Key.String and Identity.Label return the
// identity.

// Format implements [fmt.Formatter]: every verb prints the key's policy and kind, but not the identity.
func (k Key) Format(f fmt.State, verb rune) { format(f, verb, line("Key", k.LogValue())) }

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
