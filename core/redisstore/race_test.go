//go:build race

package redisstore_test

// raceEnabled: the detector makes pools drop what is put there.
const raceEnabled = true
