package core

import (
	"errors"
	"fmt"
	"strings"
)

const mostTypes = 4 // of one error

// typesOf is the Go type of err and of what it wraps, such as "*fmt.wrapError *net.OpError". The text of an error that
// others have made may hold an identity; its type does not. Of a StoreError it tells the class as well.
func typesOf(err error) string {
	var b strings.Builder
	for n := 0; err != nil && n < mostTypes; n++ {
		if n > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%T", err)
		failed, ok := err.(*StoreError) //nolint:errorlint // each error of the chain in turn
		if ok && failed != nil && validName(failed.Class) {
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
