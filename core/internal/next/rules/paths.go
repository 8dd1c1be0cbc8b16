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
	every  set       // rules for all paths
	depth  int       // the segments of the longest pattern
}

func newPaths(all []match) paths {
	p := paths{exact: newPathTree(), folded: newPathTree(), every: newBits(len(all))}
	for i := range all {
		pattern := all[i].path
		if pattern.covers(anyPath) {
			p.every.add(i)
			continue
		}
		p.exact.add(pattern, i, false)
		p.folded.add(pattern, i, true)
		p.depth = max(p.depth, len(pattern.segments))
	}
	return p
}

// match sets found to the rules that match the cleaned path, and returns those that match another reading of it, where
// they differ. A framework may read a path as it was sent, cleaned or not, with its segments decoded one by one;
// decoded as a whole, but not cleaned; as earlier middleware has left it; and what later middleware may leave of each.
// ends says that the other readings are only what later middleware may leave.
func (p *paths) match(t *adapter.Target, found set) (others []set, ends bool) {
	cleaned := cleanPath(t.Path)
	p.matchPath(cleaned, false, t, found)
	ends = t.RawPath == "" && t.Routed == "" && cleaned == t.Path
	if ends && !t.AnyEnd {
		return nil, true
	}
	var place [8]reading
	readings := append(place[:0], reading{cleaned, false})
	if !ends {
		readings = addReadings(readings, t)
	}
	var few [manyRules / 64]uint64
	other := set(slices.Grow(few[:0], len(found))[:len(found)])
	for i, r := range readings {
		var room [1 + maxEnds]string
		all := append(room[:0], r.path)
		if t.AnyEnd {
			all = addEnds(all)
		}
		if i == 0 {
			all = all[1:] // found is of the first
		}
		for _, path := range all {
			if p.matchPath(path, r.encoded, t, other); !slices.Equal(other, found) {
				others = append(others, slices.Clone(other))
			}
		}
	}
	return others, ends
}

// reading is a path as a router may read it. If it is encoded, its segments are decoded one by one.
type reading struct {
	path    string
	encoded bool
}

// addReadings adds the readings of a path but the cleaned one and what later middleware may leave.
func addReadings(readings []reading, t *adapter.Target) []reading {
	decoded := t.Path
	if t.RawPath != "" {
		readings = append(readings, reading{t.RawPath, true}, reading{cleanPath(t.RawPath), true})
		if d, err := url.PathUnescape(t.RawPath); err == nil {
			decoded = d
		}
	}
	readings = append(readings, reading{decoded, false})
	for _, r := range [...]reading{{t.Path, false}, {t.RawPath, true}} {
		if strings.HasSuffix(r.path, "/.") || strings.HasSuffix(r.path, "/..") { // nginx and gin leave the slash
			readings = append(readings, reading{cleanPath(r.path + "/"), r.encoded})
		}
	}
	if t.Routed != "" {
		readings = append(readings, reading{t.Routed, true}, reading{t.Routed, false})
	}
	return readings
}

// matchPath sets found to the rules that match a path. If it is encoded, its segments are decoded one by one.
func (p *paths) matchPath(path string, encoded bool, t *adapter.Target, found set) {
	copy(found, p.every)
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
	tree.match(segments, t, found)
}

// maxEnds is how many ends of a path are read.
const maxEnds = 8

// addEnds appends to a path what may be left of it by middleware that removes slashes at the end, or an extension, from
// the first or the last dot of the last segment on; and what may be left of that.
func addEnds(all []string) []string {
	add := func(end string) {
		if end != "" && len(all) <= maxEnds && !slices.Contains(all, end) {
			all = append(all, end)
		}
	}
	for at := 0; at < len(all); at++ { //nolint:intrange // add appends to all
		path := all[at]
		add(strings.TrimRight(path, "/"))
		segment := strings.LastIndexByte(path, '/') + 1
		if dot := strings.IndexByte(path[segment:], '.'); dot >= 0 {
			add(path[:segment+dot])
			add(path[:strings.LastIndexByte(path, '.')])
		}
	}
	return all
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
	ends    [anything + 1][]int // of patterns whose segments end here
}

func newPathTree() *pathTree { return &pathTree{literal: make(map[string]*pathTree)} }

func (t *pathTree) add(p *pattern, rule int, anyCase bool) {
	for _, s := range p.segments {
		if anyCase {
			s = lower(s)
		}
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
	t.ends[p.end] = append(t.ends[p.end], rule)
}

// match adds the rules that match what is left of a path: segments, of which the last one is empty if the path ends
// with a slash.
func (t *pathTree) match(rest []string, of *adapter.Target, found set) {
	if len(rest) == 0 || len(rest) == 1 && rest[0] == "" {
		t.matchEnd(len(rest) == 1, of, found)
		return
	}
	found.addAll(t.ends[anything])
	if next := t.literal[rest[0]]; next != nil {
		next.match(rest[1:], of, found)
	}
	if t.wild != nil {
		t.wild.match(rest[1:], of, found)
	}
}

// matchEnd adds the rules that match a path which ends here, with a slash or without.
func (t *pathTree) matchEnd(slashed bool, of *adapter.Target, found set) {
	if slashed || of.AnySlash || of.AnyRest {
		found.addAll(t.ends[anything])
	}
	if slashed || of.AnySlash {
		found.addAll(t.ends[slash])
	}
	if !slashed || of.AnySlash {
		found.addAll(t.ends[nothing])
	}
}
