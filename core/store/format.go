package store

import (
	"encoding/json"
	"fmt"
	"log/slog"
)

// Types that may be logged by accident print no identities, whatever the verb: fmt would print a Key field by field,
// also under a secret. fmt finds Format of a Key in a struct, but not behind a pointer for a verb that is none of
// pointers, so types that hold a Key have one as well. Key.String and Identity.Label return the identity.

// Format implements [fmt.Formatter]: every verb prints the take without the identity.
func (t Take) Format(f fmt.State, verb rune) {
	format(f, verb, t.Key.line("Take", slog.Int("cost", t.Cost), slog.String("mode", t.Mode.String())))
}

// Format implements [fmt.Formatter]: every verb prints the settlement without the identity.
func (s Settlement) Format(f fmt.State, verb rune) {
	format(f, verb, s.Key.line("Settlement", slog.Int("was", s.Was), slog.Int("cost", s.Cost)))
}

// Format implements [fmt.Formatter]: every verb prints the number of permits without the identity.
func (r Renewal) Format(f fmt.State, verb rune) {
	format(f, verb, r.Key.line("Renewal", slog.Int("permits", len(r.IDs))))
}

// Format implements [fmt.Formatter]: every verb prints the number of entries without the identity.
func (m MergeRequest) Format(f fmt.State, verb rune) {
	format(f, verb, m.Key.line("MergeRequest", slog.Int("entries", len(m.Entries))))
}

// Format implements [fmt.Formatter]: every verb prints the key's policy and kind, but not the identity.
func (k Key) Format(f fmt.State, verb rune) { format(f, verb, k.line("Key")) }

// LogValue implements [slog.LogValuer] with the key's policy and kind.
func (k Key) LogValue() slog.Value { return slog.GroupValue(k.attrs()...) }

// MarshalJSON implements [json.Marshaler] with the key's policy and kind.
func (k Key) MarshalJSON() ([]byte, error) {
	policy := ""
	if k.Namespace != nil {
		policy = k.Namespace.policy
	}
	return json.Marshal(map[string]string{"policy": policy, "kind": k.Kind})
}

func (k *Key) attrs() []slog.Attr {
	attrs := make([]slog.Attr, 0, 5)
	if k.Namespace != nil {
		attrs = append(attrs, slog.String("policy", k.Namespace.policy))
	}
	return append(attrs, slog.String("kind", k.Kind))
}

// line is a name, and the attributes of the key and more as text: Name[key=value key=value].
func (k *Key) line(name string, more ...slog.Attr) string {
	return name + slog.GroupValue(append(k.attrs(), more...)...).String()
}

// format writes text for any verb; %q quotes it, and width and precision hold as for %s.
func format(f fmt.State, verb rune, text string) {
	if verb != 'q' {
		verb = 's'
	}
	fmt.Fprintf(f, fmt.FormatString(f, verb), text)
}
