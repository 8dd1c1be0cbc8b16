package rules

import "math/bits"

// manyRules is how many rules are looked for without an allocation.
const manyRules = 2048

// set is a set of rules, by their place in the file.
type set []uint64

func newBits(rules int) set { return make(set, (rules+63)/64) }

func (s set) add(i int) { s[i/64] |= 1 << (i % 64) }

func (s set) addAll(rules []int) {
	for _, i := range rules {
		s.add(i)
	}
}

func (s set) addSet(o set) {
	for i := range s {
		s[i] |= o[i]
	}
}

func (s set) keep(o set) {
	for i := range s {
		s[i] &= o[i]
	}
}

// meets reports whether the sets have a rule in common.
func (s set) meets(o set) bool {
	for i := range s {
		if s[i]&o[i] != 0 {
			return true
		}
	}
	return false
}

// next returns the first rule from i on, or -1.
func (s set) next(i int) int {
	for w := i / 64; w < len(s); w++ {
		word := s[w]
		if w == i/64 {
			word &^= 1<<(i%64) - 1
		}
		if word != 0 {
			return w*64 + bits.TrailingZeros64(word)
		}
	}
	return -1
}

func (s set) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

// only removes all rules but i. A negative i is that of no rule.
func (s set) only(i int) {
	clear(s)
	if i >= 0 {
		s.add(i)
	}
}
