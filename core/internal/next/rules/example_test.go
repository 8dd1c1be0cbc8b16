//go:build next

package rules_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"

	"github.com/sashlimit/sash/core/internal/next/rules"
	"github.com/sashlimit/sash/nethttp"
)

// The program begins with the rules of a file, and loads them again when the file changes.
func ExampleLoad() {
	dir, err := os.MkdirTemp("", "rules")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "limits.yaml")
	err = os.WriteFile(path, []byte("rules:\n- {name: all, key: ip, limits: [100/minute]}\n"), 0o600)
	if err != nil {
		fmt.Println(err)
		return
	}
	set, err := rules.Load(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer set.Close()
	fmt.Println(len(set.Hash()) > 0)
	// Output: true
}

// Watch loads the file again whenever it changes, until its context ends. A file with a mistake is logged, and the
// rules before it stay in force.
func ExampleSet_Watch() { //nolint:testableexamples // it serves for ever
	set, err := rules.Load("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Print(set.Watch(context.Background())) }()
	log.Fatal(http.ListenAndServe(":8080", nethttp.Rules(set)(http.DefaultServeMux)))
}
