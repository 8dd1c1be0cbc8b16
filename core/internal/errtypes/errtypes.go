// Package errtypes tells of what types an error is, for logs.
package errtypes

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sashlimit/sash/core/store"
)

const mostTypes = 4 // of one error

// Of returns the Go types of err and of what it wraps, such as "*fmt.wrapError *net.OpError". The text of an
// error from outside this module may contain an identity; its type does not. For a StoreError it adds the class.
func Of(err error) string {
	var b strings.Builder
	for n := 0; err != nil && n < mostTypes; n++ {
		if n > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%T", err)
		failed, ok := err.(*store.StoreError) //nolint:errorlint // each error of the chain in turn
		if ok && failed != nil && isWord(failed.Class) {
			b.WriteString("(" + failed.Class + ")")
		}
		next := errors.Unwrap(err)
		if several, ok := err.(interface{ Unwrap() []error }); ok && len(several.Unwrap()) > 0 {
			next = several.Unwrap()[0]
		}
		err = next
	}
	return b.String()
}

// isWord reports whether a class is fit for a log: 1 to 64 letters, digits, '.', '_' or '-'.
func isWord(s string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return s != "" && len(s) <= 64 && strings.Trim(s, allowed) == ""
}
