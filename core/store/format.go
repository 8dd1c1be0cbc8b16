package store

import (
	"encoding/json"
	"fmt"
	"log/slog"
)

// A Key may be logged by accident. It prints no identity, whatever the verb: fmt would print its fields, also under a
// secret. Types with a Key embed it, and so print as it does, since fmt does not find Format behind all pointers.
// Key.String and Identity.Label return the identity.

// Format implements [fmt.Formatter]: every verb prints policy and kind, as Key[policy=api kind=by]. %q quotes that, and
// width and precision hold as for %s.
func (k Key) Format(f fmt.State, verb rune) {
	if verb != 'q' {
		verb = 's'
	}
	fmt.Fprintf(f, fmt.FormatString(f, verb), "Key"+k.LogValue().String())
}

// LogValue implements [slog.LogValuer] with policy and kind.
func (k Key) LogValue() slog.Value {
	kind := slog.String("kind", k.Kind)
	if k.Namespace == nil {
		return slog.GroupValue(kind)
	}
	return slog.GroupValue(slog.String("policy", k.Namespace.policy), kind)
}

// MarshalJSON implements [json.Marshaler] with policy and kind.
func (k Key) MarshalJSON() ([]byte, error) {
	policy := ""
	if k.Namespace != nil {
		policy = k.Namespace.policy
	}
	return json.Marshal(map[string]string{"policy": policy, "kind": k.Kind})
}
