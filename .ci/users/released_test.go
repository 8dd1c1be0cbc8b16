package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// checkout returns a clone of this repository and its HEAD as files.
func checkout(t *testing.T) (clone, head string) {
	t.Helper()
	needsClone(t)
	temp := t.TempDir()
	clone, err := cloneOf(repository, temp)
	if err != nil {
		t.Fatal(err)
	}
	head = filepath.Join(temp, "head")
	if _, err := command(clone, nil, "git", "worktree", "add", "--quiet", "--detach", head, "HEAD"); err != nil {
		t.Fatal(err)
	}
	return clone, head
}

// Users mix versions: the modules that are released already pass their tests with the root of HEAD.
func TestReleased(t *testing.T) {
	clone, head := checkout(t)
	releases, err := nextReleases(repository)
	if err != nil {
		t.Fatal(err)
	}
	tested, err := testReleased(clone, head, t.TempDir(), releases)
	if err != nil {
		t.Fatal(err)
	}
	if len(tested) == 0 {
		t.Skip("none of the modules in subfolders has been released: there is no tag such as " + releases[1].tag)
	}
	t.Log(tested)
}

// TestReleased finds what users would: a tag on HEAD passes, and fails if the root has lost a function.
func TestReleasedAgainstChanges(t *testing.T) {
	clone, head := checkout(t)
	releases, err := nextReleases(repository)
	if err != nil {
		t.Fatal(err)
	}
	releases = releases[:2] // one is enough
	tag := releases[1].tag
	if _, err := command(clone, nil, "git", "update-ref", "refs/tags/"+tag, "HEAD"); err != nil {
		t.Fatal(err)
	}
	some := []string{"-run", "^TestAdapter$"}
	tested, err := testReleased(clone, head, t.TempDir(), releases, some...)
	if err != nil || !slices.Equal(tested, []string{tag}) {
		t.Fatalf("%v were tested, %v, want %s", tested, err, tag)
	}

	path := filepath.Join(head, "core", "adapter.go")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	renamed := strings.Replace(string(text), "func Bind[", "func BindCallback[", 1)
	if err := os.WriteFile(path, []byte(renamed), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = testReleased(clone, head, t.TempDir(), releases, some...)
	if err == nil || !strings.Contains(err.Error(), "undefined: core.Bind") {
		t.Errorf("with a root that has no core.Bind: %v", err)
	}
}

// The latest of several versions, of which those before 1.0 and after it have the same path.
func TestLastRelease(t *testing.T) {
	needsGit(t)
	clone := filepath.Join(t.TempDir(), "clone")
	git := func(args ...string) {
		t.Helper()
		if _, err := command("", nil, "git", append([]string{"-C", clone}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := command("", nil, "git", "init", "--quiet", clone); err != nil {
		t.Fatal(err)
	}
	git("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false",
		"commit", "--quiet", "--allow-empty", "--message", "a")
	for _, tag := range []string{
		"v0.1.0", "v0.9.0", "v1.0.0", "v0.10.0", "v2.0.0", "echolimit/v5.0.0-beta.9", "echolimit/v5.0.0-beta.10",
		"fiberlimit/v3.0.0", "fiberlimit/v3.0.0-beta.2", "fiberlimit/v4.0.0", "core/other/v0.3.0",
	} {
		git("update-ref", "refs/tags/"+tag, "HEAD")
	}
	for next, want := range map[string]string{
		"v1.1.0": "v1.0.0", "echolimit/v5.0.0-beta.1": "echolimit/v5.0.0-beta.10",
		"fiberlimit/v3.1.0": "fiberlimit/v3.0.0", "core/grpclimit/v0.1.0": "",
	} {
		if got, err := lastRelease(clone, parseTag(next)); got != want || err != nil {
			t.Errorf("the last release before %s is %q, %v, want %q", next, got, err, want)
		}
	}
}
