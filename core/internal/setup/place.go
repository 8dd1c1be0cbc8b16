package setup

import (
	"path"
	"runtime"
	"strconv"
	"strings"

	"github.com/sashlimit/sash/core/adapter"
)

const modulePath = "github.com/sashlimit/sash/"

// isOutside reports whether a frame belongs to neither sash nor the runtime. The tests of sash count as outside, like
// the code of users.
func isOutside(f *runtime.Frame) bool {
	switch {
	case strings.HasSuffix(f.File, "_test.go"):
		return true
	case f.Function == "",
		strings.HasPrefix(f.Function, modulePath),
		strings.HasPrefix(f.Function, "runtime."),
		strings.HasPrefix(f.Function, "runtime/"),
		strings.HasPrefix(f.Function, "internal/runtime/"):
		return false
	}
	return true
}

// callers returns the frames of the calling goroutine.
func callers() *runtime.Frames {
	var pcs [64]uintptr
	return runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
}

// outside returns the nearest of the frames that is outside, or one without a function.
func outside(frames *runtime.Frames) runtime.Frame {
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

// PlaceOf returns the nearest function outside of sash and the runtime that led to the panic, with file and line.
func PlaceOf(p *adapter.PanicError) string {
	if f := outside(p.Frames()); f.Function != "" {
		return f.Function + " " + position(f)
	}
	return "unknown"
}

// position returns a frame's file, with only the last directory, and line: "api/routes.go:41".
func position(f runtime.Frame) string {
	if f.File == "" {
		return "unknown"
	}
	dir, file := path.Split(f.File)
	return path.Join(path.Base(dir), file) + ":" + strconv.Itoa(f.Line)
}
