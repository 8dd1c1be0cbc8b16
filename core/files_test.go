package core_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	largestCycle   = 6 // files of a package that refer to each other in a cycle, at most
	mostReferences = 6 // files of its package to which a file refers, on average
)

// sourceImporter checks the packages of this module from their source. Others are unknown to it, so references through
// their types are not seen.
type sourceImporter struct {
	fset *token.FileSet
	pkgs map[string]*types.Package
	info *types.Info
}

func (im *sourceImporter) Import(name string) (*types.Package, error) {
	dir, own := strings.CutPrefix(name, module)
	if !own {
		return nil, errors.New("not of this module")
	}
	if pkg, ok := im.pkgs[name]; ok {
		return pkg, nil
	}
	paths, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(dir), "*.go"))
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(im.fset, p, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	config := types.Config{Importer: im, Error: func(error) {}} // what other modules declare is missing
	pkg, _ := config.Check(name, im.fset, files, im.info)
	im.pkgs[name] = pkg
	return pkg, nil
}

func (im *sourceImporter) file(pos token.Pos) string { return im.fset.Position(pos).Filename }

// A reader can begin with any file of a package and find what it refers to without coming back to it.
func TestFilesReferInOneDirection(t *testing.T) {
	im := &sourceImporter{
		fset: token.NewFileSet(), pkgs: make(map[string]*types.Package),
		info: &types.Info{Uses: make(map[*ast.Ident]types.Object)},
	}
	err := filepath.WalkDir("..", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		switch _, err := os.Stat(filepath.Join(p, "go.mod")); {
		case d.Name() == ".git", d.Name() == "examples", err == nil && p != "..": // programs, and other modules
			return filepath.SkipDir
		}
		_, err = im.Import(module + strings.TrimPrefix(filepath.ToSlash(p[len(".."):]), "/"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	refers := make(map[string][]string)
	for id, object := range im.info.Uses {
		from, to := im.file(id.Pos()), im.file(object.Pos())
		_, isImport := object.(*types.PkgName)
		if from != to && !isImport && path.Dir(from) == path.Dir(to) && !slices.Contains(refers[from], to) {
			refers[from] = append(refers[from], to)
		}
	}
	if !slices.Contains(refers[filepath.Join("..", "core", "new.go")], filepath.Join("..", "core", "limiter.go")) {
		t.Fatal("core/new.go does not refer to core/limiter.go")
	}
	files, references := make(map[string]int), make(map[string]int)
	for from, to := range refers {
		files[path.Dir(from)]++
		references[path.Dir(from)] += len(to)
	}
	for dir, n := range references {
		average := float64(n) / float64(files[dir])
		if t.Logf("%s: %.1f references", dir, average); average > mostReferences {
			t.Errorf("a file of %s refers to %.1f other files of the package on average, want %d at most",
				dir, average, mostReferences)
		}
	}
	reach := make(map[string]map[string]bool)
	for from := range refers {
		reach[from] = reachable(refers, from)
	}
	seen := make(map[string]bool)
	for from := range refers {
		var cycle []string
		for to := range reach[from] {
			if reach[to][from] && !seen[to] {
				cycle = append(cycle, to)
				seen[to] = true
			}
		}
		if len(cycle) > largestCycle {
			slices.Sort(cycle)
			t.Errorf("%d files refer to each other in a cycle, want %d at most: %v", len(cycle), largestCycle, cycle)
		}
	}
}

func reachable(refers map[string][]string, from string) map[string]bool {
	found := make(map[string]bool)
	next := []string{from}
	for len(next) > 0 {
		at := next[0]
		next = next[1:]
		for _, to := range refers[at] {
			if !found[to] {
				found[to] = true
				next = append(next, to)
			}
		}
	}
	return found
}
