package core

import "slices"

// keyClass is a kind of identity that a key may return. Keys without a common class never name the same log.
type keyClass struct {
	kind, scope string
	parts       [][]keyClass // of Join, in order
}

// anyScope is the scope of keys that determine it for each request.
const anyScope = "*"

// finds reports whether the key may find identities of a kind.
func (k *keySpec) finds(kind string) bool {
	return slices.ContainsFunc(k.classes, func(c keyClass) bool { return c.kind == kind })
}

// overlap reports whether keys of these classes may name the same log.
func overlap(a, b []keyClass, x, y *prefixes) bool {
	return slices.ContainsFunc(a, func(a keyClass) bool {
		return slices.ContainsFunc(b, func(b keyClass) bool { return a.overlaps(&b, x, y) })
	})
}

func (a *keyClass) overlaps(b *keyClass, x, y *prefixes) bool {
	switch {
	case a.kind != b.kind,
		a.scope != b.scope && a.scope != anyScope && b.scope != anyScope,
		len(a.parts) != len(b.parts):
		return false
	case a.kind == kindIP || a.kind == kindUnidentified:
		return x.v4 == y.v4 || x.v6 == y.v6
	}
	for i := range a.parts {
		if !overlap(a.parts[i], b.parts[i], x, y) {
			return false
		}
	}
	return true
}
