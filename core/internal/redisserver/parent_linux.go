//go:build linux

package redisserver

import "syscall"

// dieWithParent makes the kernel kill the child when the test process ends in
// a way that runs no Cleanup, such as a timeout or a panic.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
