// Package coretest tests that a store or an adapter of your own does what sash needs, and has a store for tests of
// programs.
//
//	func TestMyStore(t *testing.T) {
//		coretest.Store(t, coretest.StoreConfig{
//			New: func(t *testing.T) coretest.Clocked {
//				clock := new(fakeClock)
//				return coretest.Clocked{Store: mystore.New(clock), Now: clock.Now, Advance: clock.Advance}
//			},
//		})
//	}
//
// An adapter for another framework runs the suite that sash's own adapters run:
//
//	func app(text func() string, limiters ...*core.Limiter) http.Handler {
//		app := myframework.New()
//		for _, l := range limiters {
//			app.Use(mylimit.From(l))
//		}
//		app.Any("/", func(c *myframework.Context) { c.Text(200, text()) })
//		return app
//	}
//
//	func TestMyAdapter(t *testing.T) {
//		coretest.Adapter(t, coretest.AdapterConfig{App: app})
//	}
//
// [Verify] proves that no window of what was admitted held more than a quota.
package coretest
