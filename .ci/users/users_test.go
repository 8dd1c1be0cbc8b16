package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sashlimit/sash/core/coretest/redistest"
)

// repository is where this repository is.
const repository = "../.."

// needsClone skips tests that clone the repository where there is none, such as in an archive of the files.
func needsClone(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds programs of other modules: make test-long runs it")
	}
	needsGit(t)
	if _, err := os.Stat(filepath.Join(repository, ".git")); err != nil {
		t.Skip("this is no git repository, so there is no commit to release")
	}
}

func needsGit(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not on PATH")
	}
}

func newProxyForTest(t *testing.T) *proxy {
	t.Helper()
	needsClone(t)
	p, err := newProxy(repository, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A program of each package that is mounted, and of the store in Redis, under the tags of the next release.
func TestUsers(t *testing.T) {
	p := newProxyForTest(t)
	for i := range programs {
		user := &programs[i]
		if !user.usesSash() {
			continue
		}
		t.Run(user.name, func(t *testing.T) {
			env := ""
			if user.frame == "redis" {
				server := redistest.Start(t)
				env = "REDIS_ADDR=" + server.Addr()
				defer func() {
					if keys, err := server.Do("DBSIZE"); err != nil || keys != int64(1) {
						t.Errorf("Redis has %v keys, %v, want 1", keys, err)
					}
				}()
			}
			dir := filepath.Join(t.TempDir(), "demo")
			if err := p.write(user, dir); err != nil {
				t.Fatal(err)
			}
			path, err := p.build(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := run(path, env); err != nil {
				t.Error(err)
			}
			p.checkVersions(t, path)
		})
	}
}

// checkVersions checks that a binary has modules of this repository, all of them as released, and none replaced.
func (p *proxy) checkVersions(t *testing.T, path string) {
	t.Helper()
	out, err := command("", p.env, "go", "version", "-m", path)
	if err != nil {
		t.Fatal(err)
	}
	released := map[string]bool{}
	for _, r := range p.releases {
		released[r.module+" "+r.version] = true
	}
	found := 0
	for _, line := range regexp.MustCompile(`(?m)^\t(dep|=>)\t(\S+)\t(\S+)`).FindAllStringSubmatch(out, -1) {
		if line[1] == "=>" {
			t.Errorf("%s %s replaces a module", line[2], line[3])
		}
		if strings.HasPrefix(line[2], root) {
			found++
			if !released[line[2]+" "+line[3]] {
				t.Errorf("the binary has %s %s", line[2], line[3])
			}
		}
	}
	if found == 0 {
		t.Errorf("the binary has no module of this repository:\n%s", out)
	}
}

func TestFigures(t *testing.T) {
	p := newProxyForTest(t)
	f, err := p.figuresOf(&program{frame: "nethttp"}, filepath.Join(t.TempDir(), "demo"))
	if err != nil || f.bytes == 0 {
		t.Fatal(f, err)
	}
	if f.bytes = 0; f != (figures{modules: 1}) {
		t.Errorf("without other modules, the figures are %+v", f)
	}
}

// The table of docs/compare.md has a row for each program that is compared, in their order.
func TestComparedPrograms(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "docs", "compare.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Dependencies\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var got, want []string
	for _, row := range regexp.MustCompile(`(?m)^\| (\w[^|]*) \|`).FindAllStringSubmatch(table, -1) {
		got = append(got, row[1])
	}
	for i := range programs {
		if programs[i].compared {
			want = append(want, programs[i].name)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("docs/compare.md has rows for %q, want %q", got, want)
	}
}

// A status too few or too many is an error.
func TestRun(t *testing.T) {
	for out, ok := range map[string]bool{
		"200 200 200 429": true, "200 200 200 200": false, "200 200 429 429": false, "200 200 200": false, "": false,
	} {
		path := filepath.Join(t.TempDir(), "program")
		script := "#!/bin/sh\nprintf '%s\\n' " + out + "\n"
		if err := os.WriteFile(path, []byte(script), 0o700); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
		if err := run(path); (err == nil) != ok {
			t.Errorf("after %q: %v", out, err)
		}
	}
}

func TestParseTag(t *testing.T) {
	for tag, want := range map[string]release{
		"v0.1.0":                   {root, "v0.1.0", "v0.1.0"},
		"v2.0.0":                   {root + "/v2", "v2.0.0", "v2.0.0"},
		"core/grpclimit/v0.1.0":    {root + "/core/grpclimit", "v0.1.0", "core/grpclimit/v0.1.0"},
		"echolimit/v5.0.0-beta.12": {root + "/echolimit/v5", "v5.0.0-beta.12", "echolimit/v5.0.0-beta.12"},
	} {
		if got := parseTag(tag); got != want {
			t.Errorf("%s is a tag of %+v, want %+v", tag, got, want)
		}
	}
}

// The modules of docs/releasing.md exist, and all that require the root require its version that is released with them.
func TestRequiredVersions(t *testing.T) {
	releases, err := nextReleases(repository)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range releases {
		text, err := os.ReadFile(filepath.Join(repository, r.folder(), "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), "module "+r.module+"\n") {
			t.Errorf("%s is no tag of the module in the folder %q", r.tag, r.folder())
		}
	}
	files, err := filepath.Glob(repository + "/*/*/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob(repository + "/*/*/*/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, path := range append(files, more...) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		line := regexp.MustCompile(`(?m)^\t` + root + ` (\S+)$`).FindSubmatch(text)
		if line == nil {
			continue
		}
		found++
		if got := string(line[1]); got != releases[0].version {
			t.Errorf("%s requires %s, want %s", path, got, releases[0].version)
		}
	}
	if found < len(releases)-1 {
		t.Errorf("%d modules require the root, want %d or more", found, len(releases)-1)
	}
}
