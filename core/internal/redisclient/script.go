package redisclient

import "sync"

// Script is a Lua text and the name that Redis gives it. All scripts reply with integers, unless a call says otherwise.
type Script struct {
	text any        // a string, boxed once
	hash func() any // the same, when it is needed first: a program that never asks Redis hashes nothing
}

// NewScript returns a script. It is for package variables.
func NewScript(text string) *Script {
	return &Script{text, sync.OnceValue(func() any { return sha1Hex(text) })}
}

// Text returns the text as it runs.
func (s *Script) Text() string { return s.text.(string) } //nolint:forcetypeassert // see NewScript
