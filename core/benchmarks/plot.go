package main

import (
	"bytes"
	"fmt"
	"html"
	"strings"

	stdfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// tone is a colour on light pages, as 0xRRGGBB, and what takes its place on dark ones.
type tone struct{ light, dark uint32 }

var (
	paper  = tone{0xffffff, 0x0d1117}
	ink    = tone{0x1f2328, 0xe6edf3}
	dim    = tone{0x59636e, 0x9198a1}
	rule   = tone{0xd8dee4, 0x30363d}
	blue   = tone{0x0969da, 0x4493f8}
	ochre  = tone{0xc69026, 0xbb8009}
	grey   = tone{0x8c959f, 0x767e87}
	pale   = tone{0xd0d7de, 0x3d444d}
	red    = tone{0xcf222e, 0xf85149}
	violet = tone{0x8250df, 0xa371f7}

	tones = []tone{paper, ink, dim, rule, blue, ochre, grey, pale, red, violet}
)

// colours are those of the kinds of limiters.
var colours = map[kind]tone{exact: blue, window: ochre, bucket: grey, floor: pale}

// RGBA implements color.Color.
func (t tone) RGBA() (r, g, b, a uint32) {
	return t.light >> 16 * 0x101, t.light >> 8 & 0xff * 0x101, t.light & 0xff * 0x101, 0xffff
}

// hex is the light colour as vgsvg writes it.
func (t tone) hex() string { return fmt.Sprintf("#%06X", t.light) }

// picture is what is drawn on, in px from the upper left corner.
type picture struct {
	draw.Canvas
	svg   *vgsvg.Canvas
	title string
}

const (
	pictureWidth = 880
	margin       = 28 // at its left and right
)

// newPicture returns one with a title and a line below it. The rest begins at y = pictureHead.
func newPicture(height vg.Length, title, note string) *picture {
	p := newCanvas(pictureWidth, height, title)
	p.text(margin, 42, title, bold(18, ink))
	p.text(margin, 66, note, plain(12, dim))
	return p
}

// newCanvas returns an empty picture.
func newCanvas(width, height vg.Length, title string) *picture {
	svg := vgsvg.New(width, height)
	p := &picture{draw.New(svg), svg, title}
	p.SetColor(paper)
	p.Fill(p.Rectangle.Path())
	return p
}

const pictureHead = 84

func plain(size vg.Length, t tone) text.Style {
	sans := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	return text.Style{Color: t, Font: sans, Handler: plot.DefaultTextHandler}
}

func bold(size vg.Length, t tone) text.Style {
	s := plain(size, t)
	s.Font.Weight = stdfont.WeightBold
	return s
}

// text writes at a base line.
func (p *picture) text(x, y vg.Length, s string, style text.Style) {
	p.FillText(style, vg.Point{X: x, Y: p.Max.Y - y}, s)
}

// part is a rectangle of the picture.
func (p *picture) part(x, y, width, height vg.Length) draw.Canvas {
	return draw.Canvas{Canvas: p.svg, Rectangle: vg.Rectangle{
		Min: vg.Point{X: x, Y: p.Max.Y - y - height},
		Max: vg.Point{X: x + width, Y: p.Max.Y - y},
	}}
}

// legend names colours, from left to right.
func (p *picture) legend(x, y, size vg.Length, entries ...legendEntry) {
	for _, e := range entries {
		box := p.part(x, y, size, size)
		p.SetColor(e.tone)
		p.Fill(box.Rectangle.Path())
		style := plain(size, ink)
		p.text(x+3*size/2, y+size-2, e.name, style)
		x += 3*size/2 + style.Width(e.name) + 2*size
	}
}

type legendEntry struct {
	tone tone
	name string
}

// bytes is the picture as SVG, in the fonts and the colours of the page that shows it.
func (p *picture) bytes() ([]byte, error) {
	var b bytes.Buffer
	if _, err := p.svg.WriteTo(&b); err != nil {
		return nil, err
	}
	var dark strings.Builder
	for _, t := range tones {
		for _, property := range []string{"fill", "stroke"} {
			fmt.Fprintf(&dark, "[style*=\"%s:%s\"] { %s: #%06x !important }\n", property, t.hex(), property, t.dark)
		}
	}
	style := "<style>\n@media (prefers-color-scheme: dark) {\n" + dark.String() + "}\n</style>\n<g "
	s := strings.Replace(b.String(), "<g ", style, 1)
	// Liberation Sans has the widths of Arial and Helvetica. A unit is a pixel.
	s = strings.ReplaceAll(s, "font-family:Liberation Sans", "font-family:Liberation Sans,Arial,Helvetica,sans-serif")
	s = strings.Replace(s, "<svg ", `<svg role="img" aria-label="`+html.EscapeString(p.title)+`" `, 1)
	s = strings.Replace(s, `pt" height="`, `" height="`, 1)
	s = strings.Replace(s, `pt" viewBox`, `" viewBox`, 1)
	return []byte(s), nil
}
