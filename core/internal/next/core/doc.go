// Package core limits how many units of work are admitted in any sliding window of time, exactly.
//
// A limiter keeps a log for each key: one entry for each admitted request, with its instant and its cost. Every
// decision adds up the entries in the window, so nothing is estimated: no window, wherever it begins, holds more than
// its quota, and a request that fits is never denied.
//
//	limiter, err := core.New(core.PerMinute(100), core.ByIP())
//	decision, err := limiter.Allow(ctx, "203.0.113.9")
//
// Web servers use the adapter for their framework, which takes one line:
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
// A [Policy] sets how much is allowed, a [Key] finds whose quota a request uses, and each [Option] changes a default.
// For each request, a [Limiter] makes a [store.Take], passes it to the [Store], and turns the [store.Answer] into a
// [Decision].
//
// # For authors of adapters
//
// An adapter is the package for a framework. It passes the framework's request to [Limiter.Check] as an
// [adapter.Request] and writes the response for the [Decision]; it makes no decisions itself. What only adapters call
// is documented with "For adapters:". An adapter has
//
//   - New, made of [NewFor], and From, made of [Bind];
//   - WithDeny and WithError, made of [OnDeny] and [OnError];
//   - Rules, made of [LimiterOf], if its requests are of type [adapter.Targeter], and Explain ([adapter.Explainer]).
//
// For an allowed request it calls [Decision.Serve], with [Decision.Response] where a callback needs the status, after
// [Decision.SetHeaders]; denials and errors are answered with [Decision.Problem] and [ProblemOf]. Package coretest has
// the tests that every adapter passes.
package core
