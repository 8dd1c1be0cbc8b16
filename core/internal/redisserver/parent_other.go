//go:build !linux

package redisserver

import "syscall"

// dieWithParent has no means here: a test process that is killed leaves its
// servers behind.
func dieWithParent() *syscall.SysProcAttr { return nil }
