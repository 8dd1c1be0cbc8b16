//go:build !unix

package redisserver

import "syscall"

// These let the package compile where no process can be paused; sending them
// fails.
const (
	stopSignal = syscall.Signal(-1)
	contSignal = syscall.Signal(-1)
)
