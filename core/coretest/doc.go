// Package coretest proves that a store of your own does what sash needs of it.
//
//	func TestMyStore(t *testing.T) {
//		coretest.Store(t, coretest.StoreConfig{
//			New: func(t *testing.T) (core.Store, func(time.Duration)) {
//				clock := new(fakeClock)
//				return mystore.New(clock), clock.Advance
//			},
//		})
//	}
package coretest
