package rules

import (
	"net/url"
	"slices"
	"strings"

	"github.com/sashlimit/sash/core/adapter"
)

// readingsOf appends the readings of a request's path to few. The first is the cleaned path. A framework may read a
// path as it was sent, cleaned or not, with its segments decoded one by one; decoded as a whole, but not cleaned; as
// earlier middleware has left it; and what later middleware may leave of each. ends says that the others are only what
// later middleware may leave of the cleaned path.
func readingsOf(t *adapter.Target, few []reading) (all []reading, ends bool) {
	few = append(few, reading{path: cleanPath(t.Path)})
	all = few
	if ends = t.RawPath == "" && t.Routed == "" && all[0].path == t.Path; !ends {
		all = addReadings(all, t)
	}
	if t.AnyEnd {
		for _, r := range all {
			all = addEnds(all, r)
		}
	}
	return all, ends
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

// maxEnds is how many ends of a path are read.
const maxEnds = 8

// addEnds adds what may be left of a path by middleware that removes slashes at the end, or an extension, from the
// first or the last dot of the last segment on; and what may be left of that.
func addEnds(all []reading, r reading) []reading {
	begin := len(all)
	add := func(end string) {
		one := reading{end, r.encoded}
		if end != "" && len(all)-begin < maxEnds && one != r && !slices.Contains(all[begin:], one) {
			all = append(all, one)
		}
	}
	cut := func(path string) {
		add(strings.TrimRight(path, "/"))
		segment := strings.LastIndexByte(path, '/') + 1
		if dot := strings.IndexByte(path[segment:], '.'); dot >= 0 {
			add(path[:segment+dot])
			add(path[:strings.LastIndexByte(path, '.')])
		}
	}
	cut(r.path)
	for at := begin; at < len(all); at++ { // cut appends to all
		cut(all[at].path)
	}
	return all
}

// matches reports whether a reading of a path matches.
func (p *pattern) matches(r reading, of *adapter.Target) bool {
	rest, more := strings.TrimPrefix(r.path, "/"), true
	if !r.encoded && !of.AnyCase && !strings.HasPrefix(rest, p.prefix) { // most of many rules
		return false
	}
	var segment string
	for _, s := range p.segments {
		if rest == "" { // it has ended, with a slash or without
			return false
		}
		if segment, rest, more = strings.Cut(rest, "/"); s == "" {
			continue
		}
		if r.encoded {
			if decoded, err := url.PathUnescape(segment); err == nil {
				segment = decoded
			}
		}
		if s != segment && !(of.AnyCase && lower(s) == lower(segment)) {
			return false
		}
	}
	switch {
	case rest != "":
		return p.end == anything
	case p.end == nothing:
		return !more || of.AnySlash
	case p.end == slash:
		return more || of.AnySlash
	}
	return more || of.AnySlash || of.AnyRest
}
