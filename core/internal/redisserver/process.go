package redisserver

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// process is a child that is waited for from the moment it starts.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child is gone
}

// run starts a child. One goroutine starts it and waits for it, and keeps its
// thread meanwhile: the kernel takes the end of the thread that forked for the
// death of the parent, and Go ends threads as it likes.
func run(binary string, args []string, output *os.File) (*process, error) {
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = dieWithParent()
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // state tells how it ended
			close(p.done)
		}
	}()
	return p, <-started
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// state may be asked for once the child is gone.
func (p *process) state() *os.ProcessState { return p.cmd.ProcessState }

func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stopped reports whether a signal has stopped the child. Where there is no
// /proc, it reports true.
func (p *process) stopped() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid()))
	name := bytes.LastIndexByte(stat, ')') // the state follows it
	return err != nil || bytes.HasPrefix(stat[name+1:], []byte(" T"))
}
