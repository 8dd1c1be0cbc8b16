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

// match adds the rules that match the cleaned path to found, which is empty, and returns those that match another
// reading of it, where they differ. A framework may read a path as it was sent, cleaned or not, with its segments
// decoded one by one; decoded as a whole, but not cleaned; as earlier middleware has left it; and what later middleware
// may leave of each. ends says that the other readings are only what later middleware may leave.
func (p *paths) match(t *adapter.Target, found set) (others []set, ends bool) {
	cleaned := cleanPath(t.Path)
	p.matchPath(cleaned, false, t, found)
	ends = t.RawPath == "" && t.Routed == "" && cleaned == t.Path
	if ends && !t.AnyEnd {
		return nil, true
	}
	var few [manyRules / 64]uint64
	other := set(few[:])
	if len(found) > len(few) {
		other = make(set, len(found))
	}
	other = other[:len(found)]
	add := func(path string, encoded bool) {
		clear(other)
		if p.matchPath(path, encoded, t, other); !slices.Equal(other, found) {
			others = append(others, slices.Clone(other))
		}
	}
	addEnds := func(path string, encoded bool) {
		var few [maxEnds]string
		for _, end := range endsOf(path, few[:0]) {
			if t.AnyEnd {
				add(end, encoded)
			}
		}
	}
	addEnds(cleaned, false)
	if ends {
		return others, true
	}
	read := func(path string, encoded bool) {
		add(path, encoded)
		addEnds(path, encoded)
	}
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
	return others, false
}

// matchPath adds the rules that match a path. If it is encoded, its segments are decoded one by one.
func (p *paths) matchPath(path string, encoded bool, t *adapter.Target, found set) {
	var few [16]string
	segments := p.split(path, few[:0])
	for i := range segments {
		if encoded {
			if decoded, err := url.PathUnescape(segments[i]); err == nil {
				segments[i] = decoded
			}
		}
		if t.AnyCase {
			segments[i] = lower(segments[i])
		}
	}
	tree := p.exact
	if t.AnyCase {
		tree = p.folded
	}
	tree.match(segments, t.AnySlash, found)
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
