// Package core limits how often something may be done in any sliding window of time, exactly.
//
// A limiter keeps a log for each key: one entry for each admitted unit, with its instant. Every decision counts the
// entries of that log, so nothing is estimated: no window, wherever it begins, holds more than its quota, and no
// request is denied that fits.
//
//	limiter, err := core.New(core.PerMinute(100), core.ByIP())
//	decision, err := limiter.Allow(ctx, "203.0.113.9")
//
// Web servers use the package of their framework, for which one line is enough:
//
//	http.ListenAndServe(":8080", nethttp.New(core.PerMinute(100), core.ByIP())(mux))
//
// # Defaults
//
// Logs are kept in this process, in a [MemoryStore]. With [WithStore] and package redisstore, several servers share
// them. A denied request is not counted; it is answered with status 429 and an exact Retry-After. A request without a
// key is answered with status 400; it never shares a quota with other requests.
//
// # Parts
//
// A [Policy] is how much is allowed, a [Key] is whose quota a request draws from, and each [Option] changes a default.
// For each request, a [Limiter] makes a [store.Take], passes it to the [Store], and turns the [store.Answer] into a
// [Decision]. The package of a framework, called an adapter, passes the framework's request to [Limiter.Check] as an
// [adapter.Request] and writes the response that the [Decision] calls for. It decides nothing itself.
package core
