//go:build unix

package redisserver

import "syscall"

const (
	stopSignal = syscall.SIGSTOP
	contSignal = syscall.SIGCONT
)
