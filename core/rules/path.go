package rules

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/sashlimit/sash/core/adapter"
	"go.yaml.in/yaml/v4"
)

// pattern is a path's pattern as net/http has them.
type pattern struct {
	segments []string // "" for a wildcard
	multi    bool     // whatever follows a slash matches as well
	slash    bool     // it ends with {$}: only the path with a slash at its end matches
}

// parsePattern reads the pattern of a rule.
func (f *faults) parsePattern(n *yaml.Node, field string) *pattern {
	fault := func(problem, remedy string) *pattern {
		f.add(n, field, fmt.Sprintf("%q: %s", cut(n.Value), problem), remedy)
		return nil
	}
	rest, ok := strings.CutPrefix(n.Value, "/")
	if !ok {
		return fault("a path begins with a slash", "write the path alone; methods and host have fields of their own")
	}
	p := new(pattern)
	names := make(map[string]bool)
	parts := strings.Split(rest, "/")
	for i, part := range parts {
		last := i == len(parts)-1
		switch {
		case part == "" && last:
			p.multi = true
		case part == "" || part == "." || part == "..":
			return fault("no path is like this, since paths are cleaned", "remove empty segments and dots")
		case part == "{$}" && last:
			p.slash = true
		case strings.HasPrefix(part, "{") && strings.HasSuffix(part, "}"):
			name := part[1 : len(part)-1]
			if trimmed, many := strings.CutSuffix(name, "..."); many {
				if name = trimmed; !last {
					return fault("{"+name+"...} matches all that follows", "put it at the end")
				}
				p.multi = true
			} else {
				p.segments = append(p.segments, "")
			}
			if !isIdentifier(name) || names[name] {
				return fault(part+" is not a wildcard, or is there twice", "write {name}, each with another name")
			}
			names[name] = true
		case strings.ContainsAny(part, "{}*"):
			return fault(part+" is not a wildcard", "a wildcard is a whole segment: {name}, or {name...} at the end")
		default:
			literal, err := url.PathUnescape(part)
			if err != nil || strings.Contains(literal, "/") {
				return fault(part+" is not a segment", "write it decoded, as the path is tried")
			}
			p.segments = append(p.segments, literal)
		}
	}
	return p
}

func isIdentifier(s string) bool {
	for i, r := range s {
		if r != '_' && !('a' <= r && r <= 'z') && !('A' <= r && r <= 'Z') && (i == 0 || r < '0' || '9' < r) {
			return false
		}
	}
	return s != ""
}

// covers reports whether p matches every path that q matches.
func (p *pattern) covers(q *pattern) bool {
	switch {
	case len(p.segments) > len(q.segments), !p.multi && len(p.segments) < len(q.segments):
		return false
	}
	for i, s := range p.segments {
		if s != "" && s != q.segments[i] {
			return false
		}
	}
	if p.multi { // q must have a slash after these segments
		return len(q.segments) > len(p.segments) || q.multi || q.slash
	}
	return !q.multi && p.slash == q.slash
}

// meets reports whether a path matches both.
func (p *pattern) meets(q *pattern) bool {
	if len(p.segments) > len(q.segments) {
		p, q = q, p
	}
	for i, s := range p.segments {
		if t := q.segments[i]; s != "" && t != "" && s != t {
			return false
		}
	}
	if len(p.segments) < len(q.segments) {
		return p.multi
	}
	return p.multi && (q.multi || q.slash) || q.multi && p.slash || !p.multi && !q.multi && p.slash == q.slash
}

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

// match adds the rules that match what is left of a cleaned path: "", or a slash and more.
func (t *pathTree) match(rest string, found set) {
	if rest == "" {
		found.addAll(t.end)
		return
	}
	found.addAll(t.multi)
	if rest == "/" {
		found.addAll(t.slash)
		return
	}
	segment, rest := rest[1:], ""
	if i := strings.IndexByte(segment, '/'); i >= 0 {
		segment, rest = segment[:i], segment[i:]
	}
	if next := t.literal[segment]; next != nil {
		next.match(rest, found)
	}
	if t.wild != nil {
		t.wild.match(rest, found)
	}
}

// cleanPath returns a path as http.ServeMux cleans it.
func cleanPath(p string) string {
	if isClean(p) {
		return p
	}
	if p == "" || p[0] != '/' {
		p = "/" + p
	}
	clean := path.Clean(p)
	if p[len(p)-1] == '/' && clean != "/" {
		clean += "/"
	}
	return clean
}

func isClean(p string) bool {
	if p == "" || p[0] != '/' {
		return false
	}
	for rest := p[1:]; ; {
		segment, after, more := strings.Cut(rest, "/")
		if segment == "." || segment == ".." || segment == "" && more {
			return false
		}
		if !more {
			return true
		}
		rest = after
	}
}

// segmentsSent returns the segments of a path as they were sent, decoded one by one. It returns nil if they are those of
// the cleaned path. The last one is empty if the path ends with a slash.
func segmentsSent(t adapter.Target) []string {
	if t.RawPath == "" && (t.Path == "" || isClean(t.Path)) {
		return nil
	}
	parts := strings.Split(strings.TrimPrefix(cmp.Or(t.RawPath, t.Path), "/"), "/")
	if t.RawPath == "" {
		return parts
	}
	for i, part := range parts {
		if decoded, err := url.PathUnescape(part); err == nil {
			parts[i] = decoded
		}
	}
	return parts
}

// matchSegments is match for segments that may be like no segment of a cleaned path.
func (t *pathTree) matchSegments(rest []string, found set) {
	if len(rest) == 0 {
		found.addAll(t.end)
		return
	}
	found.addAll(t.multi)
	if len(rest) == 1 && rest[0] == "" {
		found.addAll(t.slash)
		return
	}
	if next := t.literal[rest[0]]; next != nil {
		next.matchSegments(rest[1:], found)
	}
	if t.wild != nil {
		t.wild.matchSegments(rest[1:], found)
	}
}
