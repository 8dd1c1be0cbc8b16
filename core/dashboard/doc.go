// Package dashboard is a live page about limiters, to be mounted in the program that has them:
//
//	var board dashboard.Board
//	limiter, err := core.New(core.PerMinute(100), core.ByIP(), core.WithObserver(board.Observe))
//	...
//	board.Add(limiter)
//	mux.Handle("/limits/", adminsOnly(dashboard.Handler(&board)))
//
// It shows what policies have admitted and denied in the last minutes, what went wrong, what stores hold, the keys with
// the most requests, and the sliding window of one key. It needs no build step, no assets from elsewhere and no
// Prometheus. It counts the decisions of this process only; for several processes use package prommetrics.
//
// Anybody who can reach the page can read it, so put authentication in front of it, as for any other page for
// administrators. Identities appear as hashes unless [WithIdentities] is given, and nothing can be changed unless
// [WithActions] is.
package dashboard
