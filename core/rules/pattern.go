package rules

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"path"
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

// remedyPath is for a path that is not a pattern.
const remedyPath = "write a path as net/http has them: /users/{id}, /static/, /files/{rest...} or /{$}; " +
	"encode other characters, such as %3A for ':'"

// parsePattern returns a pattern, or what is wrong with it.
func parsePattern(text string) (p *pattern, problem string) {
	if problem = notInMux(text); problem != "" {
		return nil, problem
	}
	p = new(pattern)
	parts := strings.Split(text[1:], "/")
	for i, part := range parts {
		literal, err := url.PathUnescape(part)
		switch last := i == len(parts)-1; {
		case part == "{$}":
			p.end = slash
		case last && (part == "" || strings.HasSuffix(part, "...}")):
			p.end = anything
		case part[0] == '{':
			p.segments = append(p.segments, "")
		case err != nil, strings.Contains(literal, "/"), literal == ".", literal == "..", isForeign(part):
			return nil, part + " is not a segment of a path, or a wildcard of another router"
		default:
			p.segments = append(p.segments, literal)
		}
	}
	literals, _, _ := strings.Cut("/"+strings.Join(p.segments, "/")+"/", "//") // a wildcard is empty
	p.prefix = strings.Trim(literals, "/")
	return p, ""
}

// notInMux returns why [http.ServeMux] does not take a path, or "".
func notInMux(path string) (problem string) {
	if path != cleanPath(path) {
		return "a path begins with a slash, and has no empty segments or dots, no method and no host"
	}
	defer func() {
		if p := recover(); p != nil {
			_, problem, _ = strings.Cut(fmt.Sprint(p), ": at offset ")
			_, problem, _ = strings.Cut(problem, ": ")
			problem = cmp.Or(problem, fmt.Sprint(p))
		}
	}()
	http.NewServeMux().Handle("GET "+path, http.NotFoundHandler())
	return ""
}

// foreignSigns are in no path unless they are encoded, or begin what other routers take for an expression.
var foreignSigns = []string{
	"*", "<", ">", "[", "]", "\\", "^", "|", "(?", "(.", ".+", // of expressions, nginx and Flask
	"-:", ".:", "_:", "~:", // of parameters within a segment
	"?", "#", // of what follows a path
}

// isForeign reports whether other routers take a segment for a wildcard or an expression: :id, *rest, <id>, (?P<id>x).
func isForeign(part string) bool {
	has := func(sign string) bool { return strings.Contains(part, sign) }
	return strings.HasPrefix(part, ":") || part == "+" || len(part) > 1 && strings.HasSuffix(part, "$") ||
		slices.ContainsFunc(foreignSigns, has)
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
	switch before, slash := strings.CutSuffix(p, "/"); {
	case !slash || clean == "/":
		return clean
	case before == clean:
		return p
	}
	return clean + "/"
}

// lower returns s with the letters A to Z in lower case. Unlike [strings.ToLower], it leaves all others, as routers do.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, s)
}
