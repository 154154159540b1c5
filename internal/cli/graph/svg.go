// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"fmt"
	"strings"
)

// colors are those of a wire and of the links to it.
type colors struct{ fill, line string }

func shade(i int) colors {
	table := []colors{
		{"#cfe8ff", "#1f6fb2"},
		{"#ffe3c2", "#b2651f"},
		{"#d7f2d3", "#2f8a3a"},
		{"#ecd9f7", "#7d3fa6"},
		{"#fff3b8", "#8f7a00"},
		{"#ffd6d9", "#b23a48"},
	}
	return table[i%len(table)]
}

const (
	ink     = "#1f2328"
	soft    = "#57606a"
	nodeBg  = "#f6f8fa"
	badInk  = "#cf222e"
	badBg   = "#ffebe9"
	podBg   = "#ffffff"
	podLine = "#8c959f"
)

// dark maps each color to its counterpart for viewers that prefer a dark color scheme.
func dark() [][2]string {
	return [][2]string{
		{podBg, "#0d1117"},
		{nodeBg, "#161b22"},
		{ink, "#e6edf3"},
		{soft, "#9da7b1"},
		{podLine, "#6e7681"},
		{badBg, "#3c1618"},
		{badInk, "#ff7b72"},
		{shade(0).fill, "#12314f"},
		{shade(0).line, "#58a6ff"},
		{shade(1).fill, "#4a2f12"},
		{shade(1).line, "#e3a15a"},
		{shade(2).fill, "#173d1d"},
		{shade(2).line, "#56d364"},
		{shade(3).fill, "#38214a"},
		{shade(3).line, "#c297e8"},
		{shade(4).fill, "#3f3808"},
		{shade(4).line, "#d4bf3a"},
		{shade(5).fill, "#4a1a20"},
		{shade(5).line, "#f28b94"},
	}
}

// style writes a style sheet that replaces the colors if the viewer prefers a dark color scheme, also in an <img>. A
// viewer without style sheets shows the light colors.
func (s *svg) style() {
	s.WriteString("<style>@media (prefers-color-scheme: dark) {\n")
	for _, c := range dark() {
		fmt.Fprintf(s, "[fill=%q] { fill: %s } [stroke=%q] { stroke: %s }\n", c[0], c[1], c[0], c[1])
	}
	s.WriteString("}</style>\n")
}

// svg writes elements.
type svg struct{ strings.Builder }

// SVG returns the diagram as an SVG image.
func (d Diagram) SVG() string {
	l := d.layout()
	var s svg
	fmt.Fprintf(
		&s,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" font-family="monospace" font-size="%g">`+"\n", l.w, l.h, l.w, l.h, fontSize,
	)
	s.style()
	s.rect(box{0, 0, l.w, l.h}, podBg, "none", 0)
	s.text(pad, pad+titleSize, d.Title, ink, fmt.Sprintf(` font-size="%g" font-weight="bold"`, titleSize))
	s.block(pad, pad+titleSize+4, block{"", d.Lines})
	wires := map[string]int{}
	for i, w := range d.Wires {
		wires[w.Name] = i
	}
	s.trunks(l)
	for _, r := range l.rows {
		s.drops(r, d.Wires, wires)
	}
	for _, r := range l.rows {
		s.bars(r, d.Wires)
		s.dots(r, wires)
		for _, n := range r.nodes {
			s.node(n, wires)
		}
	}
	s.WriteString("</svg>\n")
	return s.String()
}

// trunks connect the copies of a wire if the nodes are in several rows.
func (s *svg) trunks(l layout) {
	if len(l.rows) < 2 {
		return
	}
	last := l.rows[len(l.rows)-1].bars
	for i, b := range l.rows[0].bars {
		x := gap/2 + float64(i)*barGap
		for _, r := range l.rows {
			s.line(x, r.bars[i].mid(), r.bars[i].x, r.bars[i].mid(), shade(i).line)
		}
		s.line(x, b.mid(), x, last[i].mid(), shade(i).line)
	}
}

// drops draws the lines from nodes up to their wires, behind the bars of other wires.
func (s *svg) drops(r row, all []Wire, wires map[string]int) {
	for _, n := range r.nodes {
		for i, c := range n.chips {
			if w, ok := wires[n.Links[i].Wire]; ok {
				s.stroke(c.center(), c.y, c.center(), r.bars[w].mid(), shade(w).line, dashes(all[w]))
			}
		}
	}
}

// dots marks the wire at which a line ends.
func (s *svg) dots(r row, wires map[string]int) {
	for _, n := range r.nodes {
		for i, c := range n.chips {
			if w, ok := wires[n.Links[i].Wire]; ok {
				fmt.Fprintf(s, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>`+"\n", c.center(), r.bars[w].y+barHeight,
					shade(w).line)
			}
		}
	}
}

func (s *svg) bars(r row, wires []Wire) {
	for i, b := range r.bars {
		fill := shade(i).fill
		if wires[i].Tunnel {
			fill = podBg
		}
		s.outline(b, fill, shade(i).line, 4, dashes(wires[i]))
		s.text(b.x+pad, b.y+leading, wires[i].Name, ink, ` font-weight="bold"`)
		s.text(b.x+3*pad+textWidth(wires[i].Name), b.y+leading, join(wires[i].Lines), soft, "")
	}
}

func (s *svg) node(n placedNode, wires map[string]int) {
	fill, line := nodeBg, soft
	if n.Bad {
		fill, line = badBg, badInk
	}
	s.rect(n.box, fill, line, 8)
	for i, c := range n.chips {
		chip := colors{podBg, podLine}
		if w, ok := wires[n.Links[i].Wire]; ok {
			chip = shade(w)
		}
		s.rect(c, chip.fill, chip.line, 3)
		s.block(c.x+pad/2, c.y, block{n.Links[i].Name, n.Links[i].Lines})
	}
	s.block(n.label.x, n.label.y, block{n.Name, n.Lines})
	for i, p := range n.pods {
		line := podLine
		if n.Pods[i].Bad {
			line = badInk
		}
		s.rect(p, podBg, line, 5)
		s.block(p.x+pad, p.y+pad/4, block{n.Pods[i].Name, n.Pods[i].Lines})
	}
}

func (b box) mid() float64    { return b.y + b.h/2 }
func (b box) center() float64 { return b.x + b.w/2 }

// dashes returns the stroke attribute of a tunnel.
func dashes(w Wire) string {
	if w.Tunnel {
		return ` stroke-dasharray="7 4"`
	}
	return ""
}

func (s *svg) rect(b box, fill, line string, round float64) { s.outline(b, fill, line, round, "") }

func (s *svg) outline(b box, fill, line string, round float64, more string) {
	fmt.Fprintf(s, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="%g" fill="%s" stroke="%s"%s/>`+"\n", b.x, b.y,
		b.w, b.h, round, fill, line, more)
}

func (s *svg) line(x1, y1, x2, y2 float64, color string) { s.stroke(x1, y1, x2, y2, color, "") }

func (s *svg) stroke(x1, y1, x2, y2 float64, color, more string) {
	fmt.Fprintf(s, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="2"%s/>`+"\n", x1, y1, x2, y2,
		color, more)
}

// block writes a name in bold and the lines below it in a softer color, starting at y.
func (s *svg) block(x, y float64, b block) {
	y += leading - 3
	if b.name != "" {
		s.text(x, y, b.name, ink, ` font-weight="bold"`)
		y += leading
	}
	for _, l := range b.lines {
		s.text(x, y, l, soft, "")
		y += leading
	}
}

func (s *svg) text(x, y float64, text, color, more string) {
	if text != "" {
		fmt.Fprintf(s, `<text x="%.1f" y="%.1f" fill="%s"%s>%s</text>`+"\n", x, y, color, more, escape(text))
	}
}

// escape escapes text for XML, which cannot represent most control characters.
func escape(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0xfffe || r == 0xffff {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(text)
}

func join(lines []string) string { return strings.Join(lines, "  ") }
