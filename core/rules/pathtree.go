package rules

import "strings"

// pathTree finds the rules whose patterns a path matches.
type pathTree struct {
	literal map[string]*pathTree
	wild    *pathTree
	end     []int // of patterns that end here
	slash   []int // of patterns that end with a slash and nothing behind it
	multi   []int // of patterns for all that follows a slash
}

func (t *pathTree) add(p *pattern, rule int) {
	for _, s := range p.segments {
		next := t.wild
		if s != "" {
			next = t.literal[s]
		}
		if next == nil {
			next = new(pathTree)
			if s == "" {
				t.wild = next
			} else {
				if t.literal == nil {
					t.literal = make(map[string]*pathTree)
				}
				t.literal[s] = next
			}
		}
		t = next
	}
	switch {
	case p.multi:
		t.multi = append(t.multi, rule)
	case p.slash:
		t.slash = append(t.slash, rule)
	default:
		t.end = append(t.end, rule)
	}
}

// match adds the rules that match what is left of a cleaned path: "", or a slash and more. anySlash says that a slash
// at the end of the path makes no difference.
func (t *pathTree) match(rest string, anySlash bool, found set) {
	if len(rest) <= 1 {
		t.matchEnd(rest == "/", anySlash, found)
		return
	}
	found.addAll(t.multi)
	segment, rest := rest[1:], ""
	if i := strings.IndexByte(segment, '/'); i >= 0 {
		segment, rest = segment[:i], segment[i:]
	}
	if next := t.literal[segment]; next != nil {
		next.match(rest, anySlash, found)
	}
	if t.wild != nil {
		t.wild.match(rest, anySlash, found)
	}
}

// matchEnd adds the rules that match a path which ends here. slash says that it ends with a slash.
func (t *pathTree) matchEnd(slash, anySlash bool, found set) {
	if slash || anySlash {
		found.addAll(t.multi)
		found.addAll(t.slash)
	}
	if !slash || anySlash {
		found.addAll(t.end)
	}
}

// matchSegments is match for segments that may be like no segment of a cleaned path. The last one is empty if the path
// ends with a slash.
func (t *pathTree) matchSegments(rest []string, anySlash bool, found set) {
	if len(rest) == 0 || len(rest) == 1 && rest[0] == "" {
		t.matchEnd(len(rest) == 1, anySlash, found)
		return
	}
	found.addAll(t.multi)
	if next := t.literal[rest[0]]; next != nil {
		next.matchSegments(rest[1:], anySlash, found)
	}
	if t.wild != nil {
		t.wild.matchSegments(rest[1:], anySlash, found)
	}
}
