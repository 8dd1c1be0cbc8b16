package core

import (
	"path"
	"runtime"
	"strconv"
	"strings"
)

const modulePath = "github.com/sashlimit/sash/"

// isOutside reports whether a frame is neither sash's nor the runtime's. The tests of sash are outside, as users are.
func isOutside(f *runtime.Frame) bool {
	switch {
	case strings.HasSuffix(f.File, "_test.go"):
		return true
	case f.Function == "", strings.HasPrefix(f.Function, modulePath),
		strings.HasPrefix(f.Function, "runtime."), strings.HasPrefix(f.Function,
			"runtime/"), strings.HasPrefix(f.Function, "internal/runtime/"):
		return false
	}
	return true
}

// outside is the nearest frame of the calling goroutine that is outside, or a frame without a function. In a deferred
// function that has recovered it is where the panic began.
func outside() runtime.Frame {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		if isOutside(&frame) {
			return frame
		}
		if !more {
			return runtime.Frame{}
		}
	}
}

// position is a frame's file, with its directory's name alone, and line: "api/routes.go:41".
func position(f runtime.Frame) string {
	if f.File == "" {
		return "unknown"
	}
	dir, file := path.Split(f.File)
	return path.Join(path.Base(dir), file) + ":" + strconv.Itoa(f.Line)
}
