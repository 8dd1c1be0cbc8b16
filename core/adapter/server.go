package adapter

import (
	"strings"
	"sync"
)

var servers sync.Map // of functions that call handlers, other than those of net/http

// ServedBy tells that a function calls handlers, by the end of its name as package runtime gives it. A limiter that is
// made while one is on the stack is made for each request anew, of which core warns. Functions named ServeHTTP need not
// be told. It returns true, so that a package can call it in a declaration.
func ServedBy(function string) bool {
	servers.Store(function, nil)
	return true
}

// IsServer reports whether a function calls handlers.
func IsServer(function string) (is bool) {
	if strings.HasSuffix(function, ".ServeHTTP") {
		return true
	}
	servers.Range(func(known, _ any) bool {
		is = strings.HasSuffix(function, known.(string)) //nolint:forcetypeassert // ServedBy stores nothing else
		return !is
	})
	return is
}
