package redisclient

import (
	"encoding/binary"
	"encoding/hex"
	"math/bits"
)

// sha1Hex returns the SHA-1 hash (RFC 3174) of a script's text in hexadecimal, which is the name that Redis gives the
// script. It protects nothing. It is not that of crypto/sha1, which panics where a program may use no algorithms but
// those that FIPS 140 approves.
func sha1Hex(text string) string {
	padded := append([]byte(text), 0x80)
	padded = append(padded, make([]byte, 63-(len(padded)+7)%64)...)
	padded = binary.BigEndian.AppendUint64(padded, 8*uint64(len(text)))
	sum := [5]uint32{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}
	for ; len(padded) > 0; padded = padded[64:] {
		var w [80]uint32
		for i := range w {
			if i < 16 {
				w[i] = binary.BigEndian.Uint32(padded[4*i:])
			} else {
				w[i] = bits.RotateLeft32(w[i-3]^w[i-8]^w[i-14]^w[i-16], 1)
			}
		}
		a, b, c, d, e := sum[0], sum[1], sum[2], sum[3], sum[4]
		for i, word := range w {
			var f uint32
			switch i / 20 {
			case 0:
				f = (b&c | ^b&d) + 0x5a827999
			case 1:
				f = (b ^ c ^ d) + 0x6ed9eba1
			case 2:
				f = (b&c | b&d | c&d) + 0x8f1bbcdc
			case 3:
				f = (b ^ c ^ d) + 0xca62c1d6
			}
			a, b, c, d, e = bits.RotateLeft32(a, 5)+f+e+word, a, bits.RotateLeft32(b, 30), c, d
		}
		for i, v := range [...]uint32{a, b, c, d, e} {
			sum[i] += v
		}
	}
	var name []byte
	for _, v := range sum {
		name = binary.BigEndian.AppendUint32(name, v)
	}
	return hex.EncodeToString(name)
}
