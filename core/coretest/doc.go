// Package coretest tests that a store or an adapter of your own does what sash needs. A store on a clock of its own:
//
//	func TestMyStore(t *testing.T) {
//		coretest.Store(t, coretest.StoreConfig{
//			New: func(t *testing.T) (core.Store, func(time.Duration)) {
//				clock := new(fakeClock)
//				return mystore.New(clock), clock.Advance
//			},
//		})
//	}
//
// [Explore] takes the same functions, and runs every small sequence of operations in place of random ones.
//
// An adapter for another framework runs the suite that sash's own adapters run:
//
//	func serve(t *testing.T, text func() string, limiters ...*core.Limiter) func(*http.Request) *http.Response {
//		app := myframework.New()
//		for _, l := range limiters {
//			app.Use(mylimit.From(l))
//		}
//		app.Any("/", func(c *myframework.Context) { c.Text(200, text()) })
//		return coretest.HTTP1(t, app)
//	}
//
//	func TestMyAdapter(t *testing.T) {
//		coretest.Adapter(t, coretest.AdapterConfig{Serve: serve})
//	}
package coretest
