package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const root = "github.com/sashlimit/sash"

// release is a version of a module of this repository.
type release struct{ module, version, tag string }

// parseTag returns what a tag is the version of: "echolimit/v5.0.0" of the module in the folder echolimit/v5.
func parseTag(tag string) release {
	folder, version := "", tag
	if i := strings.LastIndex(tag, "/"); i >= 0 {
		folder, version = tag[:i+1], tag[i+1:]
	}
	module := root
	if folder != "" {
		module += "/" + strings.TrimSuffix(folder, "/")
	}
	if major, _, _ := strings.Cut(version, "."); major != "v0" && major != "v1" {
		module += "/" + major
	}
	return release{module, version, tag}
}

// folder returns where the module is in the repository.
func (r release) folder() string { return strings.TrimPrefix(strings.TrimPrefix(r.module, root), "/") }

// nextReleases returns the releases whose tags docs/releasing.md has, the root's first. The repository is in dir.
func nextReleases(dir string) ([]release, error) {
	text, err := os.ReadFile(filepath.Join(dir, "docs", "releasing.md")) //nolint:gosec // of this repository
	if err != nil {
		return nil, err
	}
	var all []release
	rows := regexp.MustCompile("(?m)^\\| `[^`]+` \\| `([^`]+)` \\|")
	for _, row := range rows.FindAllStringSubmatch(string(text), -1) {
		all = append(all, parseTag(row[1]))
	}
	if len(all) == 0 || all[0].module != root {
		return nil, errors.New("docs/releasing.md: the table of modules and tags has to begin with " + root)
	}
	return all, nil
}

// proxy is a module proxy on disk, and a module cache that is filled from it.
type proxy struct {
	dir      string // of the repository
	releases []release
	env      []string // with which the go command asks the proxy
	versions map[string]string
}

// newProxy clones the repository in dir and has the go command make the files of a proxy from the clone, as it does for
// the first user who asks for a version. All of it is in temp.
func newProxy(dir, temp string) (*proxy, error) {
	releases, err := nextReleases(dir)
	if err != nil {
		return nil, err
	}
	clone, err := cloneOf(dir, temp)
	if err != nil {
		return nil, err
	}
	download := []string{"mod", "download"}
	for _, r := range releases {
		if _, err := command(clone, nil, "git", "update-ref", "refs/tags/"+r.tag, "HEAD"); err != nil {
			return nil, err
		}
		download = append(download, r.module+"@"+r.version)
	}
	made := filepath.Join(temp, "made")
	isClone := []string{
		"GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=url.file://" + clone + ".insteadOf", "GIT_CONFIG_VALUE_0=https://" + root,
		"GOMODCACHE=" + made, "GOPRIVATE=" + root, "GOFLAGS=-modcacherw", "GOWORK=off",
	}
	if _, err := command(temp, isClone, "go", download...); err != nil {
		return nil, err
	}
	mine, err := command("", nil, "go", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return nil, err
	}
	cache, others, _ := strings.Cut(strings.TrimSpace(mine), "\n")
	p := &proxy{dir: dir, releases: releases}
	p.env = []string{
		// Other modules come from what has been downloaded already, if it is there.
		"GOPROXY=file://" + filepath.Join(made, "cache", "download") +
			",file://" + filepath.Join(cache, "cache", "download") + "," + others,
		"GOMODCACHE=" + filepath.Join(temp, "cache"), // that of the machine must never have releases made from HEAD
		"GOFLAGS=-modcacherw -trimpath",              // what has been built does not depend on the folder
		"GOSUMDB=off",                                // which cannot know these releases
		"GOPRIVATE=", "GONOPROXY=", "GOWORK=off",
	}
	p.versions, err = p.required()
	return p, err
}

// required returns the versions of other modules that this repository requires: those of the root, of the adapters, and
// of the benchmarks for other limiters.
func (p *proxy) required() (map[string]string, error) {
	versions := map[string]string{}
	folders := []string{"core/benchmarks"}
	for _, r := range slices.Backward(p.releases) {
		folders = append(folders, r.folder())
	}
	for _, folder := range folders { // the root is the last and counts most
		text, err := os.ReadFile(filepath.Join(p.dir, folder, "go.mod")) //nolint:gosec // as above
		if err != nil {
			return nil, err
		}
		for _, line := range regexp.MustCompile(`(?m)^\t(\S+) (v\S+)`).FindAllStringSubmatch(string(text), -1) {
			versions[line[1]] = line[2]
		}
	}
	return versions, nil
}

// query returns a package with the version of its module, as go get wants it.
func (p *proxy) query(path string) (string, error) {
	for module := path; module != "."; module = filepath.Dir(module) {
		for _, r := range p.releases {
			if r.module == module {
				return path + "@" + r.version, nil
			}
		}
		if version := p.versions[module]; version != "" {
			return path + "@" + version, nil
		}
	}
	return "", fmt.Errorf("no go.mod has a version of %s", path)
}

// cloneOf makes a bare clone of the repository in dir, with its tags and its HEAD.
func cloneOf(dir, temp string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	clone := filepath.Join(temp, "clone")
	_, err = command("", nil, "git", "clone", "--quiet", "--bare", "file://"+dir, clone)
	return clone, err
}

// command runs a program in dir and returns what it prints.
func command(dir string, env []string, name string, args ...string) (string, error) {
	c := exec.CommandContext(context.Background(), name, args...) //nolint:gosec // those of this program
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, &stderr)
	}
	return string(out), err
}
