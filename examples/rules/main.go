// Rules checks a file of rules, for a pipeline or an editor.
//
//	go run ./examples/rules check -verifier keys examples/gateway/limits.yaml
//
// It prints the rules and their limits and exits with 0, or prints every mistake with its line and exits with 1; with 2
// if it was called wrongly. -verifier names a verifier that the program of these rules registers
// ([rules.WithVerifier]), and may be given several times.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/sashlimit/sash/core"
	"github.com/sashlimit/sash/core/rules"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, errs io.Writer) (status int) {
	opts := []rules.Option{rules.WithClaims(func(claim string) core.Key { return core.ByValue(claim) })}
	var names []string
	flags := flag.NewFlagSet("rules check", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.Func("verifier", "`NAME` of a verifier", func(name string) error {
		if name == "" || name == "unverified" || slices.Contains(names, name) {
			return errors.New("give each verifier a name of its own, other than unverified")
		}
		names, opts = append(names, name), append(opts, rules.WithVerifier(name, core.Unverified))
		return nil
	})
	flags.Usage = func() {
		fmt.Fprintln(errs, "usage: rules check [-verifier NAME]... FILE")
		flags.PrintDefaults()
	}
	if len(args) == 0 || args[0] != "check" {
		flags.Usage()
		return 2
	}
	if err := flags.Parse(args[1:]); err != nil { // it has told this
		return 2
	}
	if flags.NArg() != 1 {
		flags.Usage()
		return 2
	}
	set, err := rules.Load(flags.Arg(0), opts...)
	if err != nil {
		fmt.Fprintln(errs, err)
		return 1
	}
	defer set.Close()
	fmt.Fprintln(out, set)
	return 0
}
