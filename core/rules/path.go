package rules

import (
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

// pattern is a path's pattern as net/http has them.
type pattern struct {
	segments []string // "" for a wildcard
	end      ending
	prefix   string // the segments in front of the first wildcard
}

// ending is what the path of a pattern has behind its segments.
type ending int

const (
	nothing  ending = iota
	slash           // and nothing behind it, as {$} says
	anything        // behind a slash
)

// anyPath is the pattern of rules that have none.
var anyPath = &pattern{end: anything}

// parsePattern returns a pattern, or what is wrong with it.
func parsePattern(text string) (p *pattern, problem, remedy string) {
	fault := func(problem, remedy string) (*pattern, string, string) { return nil, problem, remedy }
	rest, ok := strings.CutPrefix(text, "/")
	if !ok {
		return fault("a path must begin with a slash",
			"write only the path; methods and host have fields of their own")
	}
	p = new(pattern)
	names := make(map[string]bool)
	parts := strings.Split(rest, "/")
	for i, part := range parts {
		last := i == len(parts)-1
		switch {
		case part == "" && last:
			p.end = anything
		case part == "" || part == "." || part == "..":
			return fault("no request has such a path, since paths are cleaned first", "remove empty segments and dots")
		case part == "{$}" && last:
			p.end = slash
		case strings.HasPrefix(part, "{") && strings.HasSuffix(part, "}"):
			name := part[1 : len(part)-1]
			if trimmed, many := strings.CutSuffix(name, "..."); many {
				if name = trimmed; !last {
					return fault("{"+name+"...} matches all that follows", "put it at the end")
				}
				p.end = anything
			} else {
				p.segments = append(p.segments, "")
			}
			switch {
			case !isIdentifier(name):
				return fault(part+" is not a wildcard", "write "+wildcardFor(part, last))
			case names[name]:
				return fault(part+" is there twice", "give each wildcard another name")
			}
			names[name] = true
		case isForeign(part):
			return fault(part+" is not a wildcard here", "a wildcard is a whole segment: write "+
				wildcardFor(part, last)+"; to match such a character itself, encode it, such as %3A for ':'")
		case strings.ContainsAny(part, "?#"):
			return fault("a path has no query and no fragment",
				"remove what follows, or encode the characters: %3F, %23")
		default:
			literal, err := url.PathUnescape(part)
			if err != nil || strings.Contains(literal, "/") {
				return fault(part+" is not a segment", "write it as it is after decoding, without encoded slashes")
			}
			p.segments = append(p.segments, literal)
		}
	}
	literals := p.segments
	if wild := slices.Index(literals, ""); wild >= 0 {
		literals = literals[:wild]
	}
	p.prefix = strings.Join(literals, "/")
	return p, "", ""
}

// foreignSigns are in no path unless they are encoded, or begin what other routers take for an expression.
var foreignSigns = []string{
	"{", "}", "*", "<", ">", "[", "]", "\\", "^", "|", "(?", "(.", ".+", // of expressions, nginx and Flask
	"-:", ".:", "_:", "~:", // of parameters within a segment
}

// isForeign reports whether other routers take a segment for a wildcard or an expression: :id, *rest, <id>, (?P<id>x).
func isForeign(part string) bool {
	has := func(sign string) bool { return strings.Contains(part, sign) }
	return strings.HasPrefix(part, ":") || part == "+" || len(part) > 1 && strings.HasSuffix(part, "$") ||
		slices.ContainsFunc(foreignSigns, has)
}

// foreignName finds the name in a wildcard of another router: :id, *rest, <id>, <int:id>, (?P<id>x), {id:x}.
var foreignName = regexp.MustCompile(`(?:<\w+:|P<|[:*<{])([A-Za-z_]\w*)`)

// wildcardFor returns what to write instead of another router's wildcard.
func wildcardFor(part string, last bool) string {
	name := "name"
	if found := foreignName.FindStringSubmatch(part); found != nil {
		name = found[1]
	}
	if last && strings.ContainsAny(part, "*+") && !strings.ContainsAny(part, `[\`) {
		return "{" + name + "...} for all that follows, or {" + name + "} for one segment"
	}
	return "{" + name + "}"
}

func isIdentifier(s string) bool {
	digit := s != "" && '0' <= s[0] && s[0] <= '9'
	return s != "" && !digit && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// covers reports whether p matches every path that q matches.
func (p *pattern) covers(q *pattern) bool {
	if len(p.segments) > len(q.segments) || p.end != anything && len(p.segments) < len(q.segments) {
		return false
	}
	for i, s := range p.segments {
		if s != "" && s != q.segments[i] {
			return false
		}
	}
	return p.end == q.end || p.end == anything && (len(p.segments) < len(q.segments) || q.end != nothing)
}

// cleanPath returns a path as http.ServeMux cleans it. A clean one costs no allocation.
func cleanPath(p string) string {
	if p == "" || p[0] != '/' {
		p = "/" + p
	}
	clean := path.Clean(p)
	switch {
	case p[len(p)-1] != '/' || clean == "/":
		return clean
	case len(p) == len(clean)+1 && strings.HasPrefix(p, clean):
		return p
	}
	return clean + "/"
}

// lower returns s with the letters A to Z in lower case, without an allocation if there are none.
func lower(s string) string {
	for i := range len(s) {
		if s[i] != lowerByte(s[i]) {
			b := []byte(s)
			for ; i < len(b); i++ {
				b[i] = lowerByte(b[i])
			}
			return string(b)
		}
	}
	return s
}

func lowerByte(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		b += 'a' - 'A'
	}
	return b
}

// equalFold reports whether two texts are equal but for the case of the letters A to Z. Unlike [strings.EqualFold], it
// takes no other letters for equal, as routers do not.
func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lowerByte(a[i]) != lowerByte(b[i]) {
			return false
		}
	}
	return true
}
