package deadline

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"
)

// waits reports whether a goroutine waits for the lock of a set to tell the deadline of an operation.
func waits() bool {
	all := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(all[:runtime.Stack(all, true)]), "\n\n") {
		if strings.Contains(stack, "Context.Deadline(") && strings.Contains(stack, "(*Mutex).") {
			return true
		}
	}
	return false
}

// An operation has its time from when it is told its deadline, however long it has waited for that.
func TestWaitForTheLock(t *testing.T) {
	d := New(time.Millisecond, nil)
	ctx := d.Within(context.Background(), time.Now())
	d.mu.Lock()
	ends := make(chan time.Time)
	go func() {
		end, _ := ctx.Deadline()
		ends <- end
	}()
	for !waits() {
		runtime.Gosched()
	}
	var free time.Time
	for begun := time.Now(); free.Sub(begun) < 10*time.Millisecond; free = time.Now() {
		runtime.Gosched()
	}
	d.mu.Unlock()
	if end := <-ends; !end.After(free) {
		t.Errorf("the operation has to end %v before the lock was free", free.Sub(end))
	}
}
