// Package logname has names of logs that are comparable, for maps.
package logname

import "github.com/sashlimit/sash/core/store"

// Name names a log.
type Name struct {
	namespace string
	identity  store.Identity
	log       string
}

// Of returns the name of the log that a limit has of a key.
func Of(k *store.Key, l *store.Limit) Name { return Name{k.Namespace.Name(), k.Identity, l.Log} }
