// Package core limits how often someone may do something in any sliding
// window of time, exactly.
//
// It keeps a log: one entry for each admitted unit, with its instant. Every
// answer is a question asked of that log, so nothing is estimated: no window,
// wherever it begins, ever holds more than its quota, and no request is denied
// that would have fitted.
//
//	limiter, err := core.New(core.PerMinute(100), core.ByIP())
//	decision, err := limiter.Allow(ctx, "203.0.113.9")
//
// Web servers use the package of their framework, which is one line:
//
//	http.ListenAndServe(":8080", nethttp.New(core.PerMinute(100), core.ByIP())(mux))
//
// # What happens by default
//
// The log is kept in this process ([MemoryStore]); several servers share one
// through package redisstore and [WithStore]. A denied request is answered
// with 429, a Retry-After that is exact, and is not counted. A request whose
// key cannot be told is refused with 400; it never shares a quota with others.
//
// # How the pieces fit
//
// A [Policy] says how much, a [Key] whose quota, and options the rest. The
// [Limiter] turns a [Request] into one [Take] for the [Store] and its [Answer]
// into a [Decision]. An adapter shows its framework's request as a [Request]
// and writes the [Decision] in its framework's way; it decides nothing.
package core
