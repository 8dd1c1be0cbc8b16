package rules

import (
	"net/url"
	"slices"
	"strings"

	"github.com/sashlimit/sash/core/adapter"
)

// paths finds the rules whose patterns a request's path matches.
type paths struct {
	exact  *pathTree
	folded *pathTree // of patterns in lower case
	depth  int       // the segments of the longest pattern
}

func newPaths(all []match) paths {
	p := paths{exact: newPathTree(), folded: newPathTree()}
	for i := range all {
		if pattern := all[i].path; pattern != nil {
			p.exact.add(pattern, i)
			p.folded.add(pattern.lower(), i)
			p.depth = max(p.depth, len(pattern.segments))
		}
	}
	return p
}

// lower returns the pattern in lower case.
func (p *pattern) lower() *pattern {
	own := *p
	own.segments = make([]string, len(p.segments))
	for i, s := range p.segments {
		own.segments[i] = lower(s)
	}
	return &own
}

// match adds the rules that match the cleaned path to found, which is empty, and returns those that match each other
// reading of it. ends says that these readings are only what later middleware may leave of a path.
func (p *paths) match(t *adapter.Target, found set) (others []set, ends bool) {
	path := cleanPath(t.Path)
	p.matchPath(path, t, found)
	if t.RawPath == "" && t.Routed == "" && path == t.Path {
		if t.AnyEnd {
			others = p.matchEnds(path, t, found)
		}
		return others, true
	}
	for _, segments := range p.readings(path, t) {
		other := make(set, len(found))
		p.matchSegments(segments, t, other)
		others = append(others, other)
	}
	return others, false
}

// matchPath adds the rules that match a cleaned path.
func (p *paths) matchPath(path string, t *adapter.Target, found set) {
	var few [16]string
	p.matchSegments(p.split(path, few[:0]), t, found)
}

// matchSegments adds the rules that match a path of these segments, which it may change.
func (p *paths) matchSegments(segments []string, t *adapter.Target, found set) {
	tree := p.exact
	if t.AnyCase {
		tree = p.folded
		for i, s := range segments {
			segments[i] = lower(s)
		}
	}
	tree.match(segments, t.AnySlash, found)
}

// matchEnds returns the rules that match what later middleware may leave of a cleaned path, unless they are those of
// the path itself.
func (p *paths) matchEnds(path string, t *adapter.Target, found set) (others []set) {
	var few [manyRules / 64]uint64
	other := set(few[:])
	if len(found) > len(few) {
		other = make(set, len(found))
	}
	other = other[:len(found)]
	var ends [maxEnds]string
	for _, end := range endsOf(path, ends[:0]) {
		clear(other)
		if p.matchPath(end, t, other); !slices.Equal(other, found) {
			others = append(others, slices.Clone(other))
		}
	}
	return others
}

// readings returns the segments of a path in each way that a framework may read it, other than decoded and then
// cleaned: as it was sent, cleaned or not, with its segments decoded one by one; decoded as a whole, but not cleaned;
// as earlier middleware has left it; and what later middleware may leave of each.
func (p *paths) readings(cleaned string, t *adapter.Target) [][]string {
	all := [][]string{p.split(cleaned, nil)}
	add := func(path string, encoded bool) {
		segments := p.split(path, nil)
		for i := range segments {
			if decoded, err := url.PathUnescape(segments[i]); encoded && err == nil {
				segments[i] = decoded
			}
		}
		same := func(other []string) bool { return slices.Equal(segments, other) }
		if !slices.ContainsFunc(all, same) {
			all = append(all, segments)
		}
	}
	read := func(path string, encoded bool) {
		add(path, encoded)
		if t.AnyEnd {
			for _, end := range endsOf(path, nil) {
				add(end, encoded)
			}
		}
	}
	read(cleaned, false)
	decoded := t.Path
	if t.RawPath != "" {
		read(t.RawPath, true)
		read(cleanPath(t.RawPath), true)
		if d, err := url.PathUnescape(t.RawPath); err == nil {
			decoded = d
		}
	}
	read(decoded, false)
	if t.Routed != "" {
		read(t.Routed, true)
		read(t.Routed, false)
	}
	return all[1:]
}

// maxEnds is how many ends of a path are read.
const maxEnds = 8

// endsOf appends to ends what may be left of a path by middleware that removes slashes at the end, or an extension,
// from the first or the last dot of the last segment on; and what may be left of that.
func endsOf(path string, ends []string) []string {
	add := func(end string) {
		if end != path && end != "" && len(ends) < maxEnds && !slices.Contains(ends, end) {
			ends = append(ends, end)
		}
	}
	for at, rest := 0, path; ; at++ {
		add(strings.TrimRight(rest, "/"))
		segment := strings.LastIndexByte(rest, '/') + 1
		if dot := strings.IndexByte(rest[segment:], '.'); dot >= 0 {
			add(rest[:segment+dot])
			add(rest[:strings.LastIndexByte(rest, '.')])
		}
		if at >= len(ends) {
			return ends
		}
		rest = ends[at]
	}
}

// split appends the segments of a path to all. Segments that are deeper than all patterns remain together.
func (p *paths) split(path string, all []string) []string {
	rest := strings.TrimPrefix(path, "/")
	for range p.depth + 1 {
		segment, after, more := strings.Cut(rest, "/")
		if !more {
			break
		}
		all, rest = append(all, segment), after
	}
	return append(all, rest)
}

// pathTree finds the rules whose patterns a path matches.
type pathTree struct {
	literal map[string]*pathTree
	wild    *pathTree
	end     []int // of patterns that end here
	slash   []int // of patterns that end with a slash and nothing behind it
	multi   []int // of patterns for all that follows a slash
}

func newPathTree() *pathTree { return &pathTree{literal: make(map[string]*pathTree)} }

func (t *pathTree) add(p *pattern, rule int) {
	for _, s := range p.segments {
		switch {
		case s == "" && t.wild == nil:
			t.wild = newPathTree()
		case s != "" && t.literal[s] == nil:
			t.literal[s] = newPathTree()
		}
		if s == "" {
			t = t.wild
		} else {
			t = t.literal[s]
		}
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

// match adds the rules that match what is left of a path: segments, of which the last one is empty if the path ends
// with a slash. With anySlash, a slash at the end makes no difference.
func (t *pathTree) match(rest []string, anySlash bool, found set) {
	if len(rest) == 0 || len(rest) == 1 && rest[0] == "" {
		t.matchEnd(len(rest) == 1, anySlash, found)
		return
	}
	found.addAll(t.multi)
	if next := t.literal[rest[0]]; next != nil {
		next.match(rest[1:], anySlash, found)
	}
	if t.wild != nil {
		t.wild.match(rest[1:], anySlash, found)
	}
}

// matchEnd adds the rules that match a path which ends here, with a slash or without.
func (t *pathTree) matchEnd(slash, anySlash bool, found set) {
	if slash || anySlash {
		found.addAll(t.multi)
		found.addAll(t.slash)
	}
	if !slash || anySlash {
		found.addAll(t.end)
	}
}
