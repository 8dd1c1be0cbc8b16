package redisclient

import (
	"crypto/sha1" //nolint:gosec // the name that Redis gives a script
	"encoding/hex"
	"strings"
	"testing"
)

// Lengths to two blocks, so that the padding ends in each place of a block.
func TestSHA1(t *testing.T) {
	for n := range 130 {
		text := strings.Repeat("a\xffz", n)[:n]
		sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
		if got, want := sha1Hex(text), hex.EncodeToString(sum[:]); got != want {
			t.Errorf("the hash of %d bytes is %s, want %s", n, got, want)
		}
	}
}
