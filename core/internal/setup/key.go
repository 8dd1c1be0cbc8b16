package setup

import "slices"

// KeyClass is a kind of identity that a key may return. Keys without a common class never name the same log.
type KeyClass struct {
	Kind, Scope string
	Address     bool         // its identities are prefixes of addresses
	Parts       [][]KeyClass // of a key that is made of several, in order
}

// AnyScope is the scope of keys that determine it for each request.
const AnyScope = "*"

// overlap reports whether keys of these classes, which two limiters have, may name the same log.
func overlap(a, b []KeyClass, x, y *Limiter) bool {
	return slices.ContainsFunc(a, func(a KeyClass) bool {
		return slices.ContainsFunc(b, func(b KeyClass) bool { return a.overlaps(&b, x, y) })
	})
}

func (a *KeyClass) overlaps(b *KeyClass, x, y *Limiter) bool {
	switch {
	case a.Kind != b.Kind,
		a.Scope != b.Scope && a.Scope != AnyScope && b.Scope != AnyScope,
		len(a.Parts) != len(b.Parts):
		return false
	case a.Address:
		return x.V4 == y.V4 || x.V6 == y.V6
	}
	for i := range a.Parts {
		if !overlap(a.Parts[i], b.Parts[i], x, y) {
			return false
		}
	}
	return true
}
