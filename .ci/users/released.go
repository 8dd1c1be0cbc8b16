package main

import (
	"errors"
	"path/filepath"
	"strings"
)

// lastRelease returns the tag of the latest version of the module that r is a version of, in the clone. It is empty
// before the first.
func lastRelease(clone string, r release) (tag string, err error) {
	prefix := strings.TrimSuffix(r.tag, r.version)
	major, _, _ := strings.Cut(r.version, ".")
	if major == "v0" || major == "v1" { // which have the same path
		major = "v[01]"
	}
	// A suffix such as -beta.1 comes before the version without it.
	tags, err := command(clone, nil, "git", "-c", "versionsort.suffix=-", "tag", "--sort=-version:refname",
		"--list", prefix+major+".*")
	tag, _, _ = strings.Cut(tags, "\n")
	return tag, err
}

// testReleased runs the short tests of the last release of each module but the root, with the root in the folder head:
// users who raise one module get such a pair. It returns the tags that it has tested. The args are of go test.
func testReleased(clone, head, temp string, releases []release, args ...string) (tested []string, err error) {
	for _, r := range releases[1:] {
		tag, err := lastRelease(clone, r)
		if err != nil {
			return tested, err
		}
		if tag == "" {
			continue
		}
		tree := filepath.Join(temp, strings.ReplaceAll(tag, "/", "-"))
		if _, err := command(clone, nil, "git", "worktree", "add", "--quiet", "--detach", tree, tag); err != nil {
			return tested, err
		}
		folder := filepath.Join(tree, r.folder())
		if _, err := command(folder, nil, "go", "mod", "edit", "-replace", root+"="+head); err != nil {
			return tested, err
		}
		env := []string{"GOFLAGS=-mod=mod -trimpath", "GOWORK=off"} // the root of HEAD may require other versions
		arguments := append([]string{"test", "-short"}, args...)
		if _, err := command(folder, env, "go", append(arguments, "./...")...); err != nil {
			return tested, errors.Join(errors.New(tag+" fails with the root of HEAD"), err)
		}
		tested = append(tested, tag)
	}
	return tested, nil
}
