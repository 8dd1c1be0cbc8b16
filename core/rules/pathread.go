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
	p := paths{exact: new(pathTree)}
	p.folded = p.exact
	for i := range all {
		if all[i].path == nil {
			continue
		}
		p.exact.add(all[i].path, i)
		p.depth = max(p.depth, len(all[i].path.segments))
		if all[i].path.hasUpper() {
			p.folded = new(pathTree)
		}
	}
	for i := range all {
		if all[i].path != nil && p.folded != p.exact {
			p.folded.add(all[i].path.lower(), i)
		}
	}
	return p
}

func (p *pattern) hasUpper() bool {
	return slices.ContainsFunc(p.segments, func(s string) bool { return lower(s) != s })
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
	if t.AnyCase {
		p.folded.match(lower(path), t.AnySlash, found)
		return
	}
	p.exact.match(path, t.AnySlash, found)
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

// matchSegments adds the rules that match a path of these segments.
func (p *paths) matchSegments(segments []string, t *adapter.Target, found set) {
	if !t.AnyCase {
		p.exact.matchSegments(segments, t.AnySlash, found)
		return
	}
	own := make([]string, len(segments))
	for i, s := range segments {
		own[i] = lower(s)
	}
	p.folded.matchSegments(own, t.AnySlash, found)
}

// readings returns the segments of a path in each way that a framework may read it, other than decoded and then
// cleaned: as it was sent, cleaned or not, with its segments decoded one by one; decoded as a whole, but not cleaned;
// as earlier middleware has left it; and what later middleware may leave of each.
func (p *paths) readings(cleaned string, t *adapter.Target) [][]string {
	all := [][]string{p.split(cleaned)}
	add := func(path string, encoded bool) {
		segments := p.split(path)
		if encoded {
			segments = decodeEach(segments)
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

// split returns the segments of a path, the last of which is empty if the path ends with a slash. Segments that are
// deeper than all patterns remain together.
func (p *paths) split(path string) []string {
	return strings.SplitN(strings.TrimPrefix(path, "/"), "/", p.depth+2)
}

func decodeEach(segments []string) []string {
	for i, s := range segments {
		if decoded, err := url.PathUnescape(s); err == nil {
			segments[i] = decoded
		}
	}
	return segments
}
