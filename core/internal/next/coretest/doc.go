// Package coretest tests that a store of your own does what sash needs, and has a store for tests of programs.
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
// [Verify] proves that no window of what was admitted held more than a quota.
package coretest
