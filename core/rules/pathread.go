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
}

func newPaths(all []match) paths {
	p := paths{exact: new(pathTree)}
	p.folded = p.exact
	for i := range all {
		if all[i].path == nil {
			continue
		}
		p.exact.add(all[i].path, i)
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

// match adds the rules that match the cleaned path.
func (p *paths) match(t *adapter.Target, found set) {
	path := cleanPath(t.Path)
	if t.AnyCase {
		p.folded.match(lower(path), t.AnySlash, found)
		return
	}
	p.exact.match(path, t.AnySlash, found)
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
// cleaned: as it was sent, cleaned or not, with its segments decoded one by one; and decoded as a whole, but not
// cleaned. It returns nil if they are all those of the cleaned path.
func readings(t *adapter.Target) (all [][]string) {
	if t.RawPath == "" && (t.Path == "" || isClean(t.Path)) {
		return nil
	}
	known := [][]string{split(cleanPath(t.Path))}
	add := func(segments []string) {
		same := func(other []string) bool { return slices.Equal(segments, other) }
		if !slices.ContainsFunc(known, same) {
			known = append(known, segments)
		}
	}
	if t.RawPath == "" {
		add(split(t.Path))
		return known[1:]
	}
	add(decodeEach(split(t.RawPath)))
	add(decodeEach(split(cleanPath(t.RawPath))))
	decoded, err := url.PathUnescape(t.RawPath)
	if err != nil {
		decoded = t.Path
	}
	add(split(decoded))
	return known[1:]
}

// split returns the segments of a path. The last one is empty if the path ends with a slash.
func split(path string) []string { return strings.Split(strings.TrimPrefix(path, "/"), "/") }

func decodeEach(segments []string) []string {
	for i, s := range segments {
		if decoded, err := url.PathUnescape(s); err == nil {
			segments[i] = decoded
		}
	}
	return segments
}
