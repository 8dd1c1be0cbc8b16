package fasthttpadapter

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

// Lines are read in the order in which they were sent, whatever the header was made to have since: fasthttp moves the
// last field into the place of one that it removes. Lines that middleware has added come last.
func TestOrderOfLines(t *testing.T) {
	const name = "X-Forwarded-For"
	inOrder, moved := 0, 0
	for seed := range uint64(2000) {
		chance := rand.New(rand.NewPCG(seed, 0))
		var text strings.Builder
		text.WriteString("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n")
		var sent []string
		for range chance.IntN(6) {
			line := fmt.Sprint("192.0.2.", chance.IntN(3)) // some are equal
			sent = append(sent, line)
			field := []string{name, "x-forwarded-for"}[chance.IntN(2)]
			fmt.Fprintf(&text, "%s:%s%s\r\n", field, "  "[chance.IntN(3):], line)
			if chance.IntN(2) == 0 {
				fmt.Fprintf(&text, "Via: %s\r\n", line)
			}
		}
		text.WriteString("\r\n")
		var c fasthttp.RequestCtx
		h := &c.Request.Header
		if err := h.Read(bufio.NewReader(strings.NewReader(text.String()))); err != nil {
			t.Fatal(err)
		}
		now, want := slices.Clone(sent), slices.Clone(sent)
		if chance.IntN(2) == 0 {
			chance.Shuffle(len(now), func(i, j int) { now[i], now[j] = now[j], now[i] })
		}
		at := 0
		for i := range chance.IntN(3) {
			at += chance.IntN(len(now) - at + 1)
			added := fmt.Sprint("added ", i)
			now, want = slices.Insert(now, at, added), append(want, added)
			at++
		}
		h.Del(name)
		for _, line := range now {
			h.Add(name, line)
		}
		if slices.Equal(now, want) {
			inOrder++
		} else {
			moved++
		}
		if got := HeaderOf(&c, name); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %q, want %q; sent was\n%s", seed, got, want, &text)
		}
	}
	if inOrder < 100 || moved < 100 {
		t.Errorf("%d headers in order and %d others", inOrder, moved)
	}
}

// Of a request that a program has made, nothing was sent.
func TestLinesOfNoClient(t *testing.T) {
	var c fasthttp.RequestCtx
	want := []string{"192.0.2.1", "192.0.2.2"}
	for _, line := range want {
		c.Request.Header.Add("X-Forwarded-For", line)
	}
	c.Request.SetBodyString("a")
	c.Request.Header.SetContentLength(1)
	if got := HeaderOf(&c, "X-Forwarded-For"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
