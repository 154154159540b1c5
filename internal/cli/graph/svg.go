// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"fmt"
	"strings"
)

// colors of a wire and of the links to it.
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

// svg writes elements.
type svg struct{ strings.Builder }

// SVG is the diagram as a picture.
func (d Diagram) SVG() string {
	l := d.layout()
	var s svg
	fmt.Fprintf(
		&s,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" font-family="monospace" font-size="%g">`+"\n", l.w, l.h, l.w, l.h, fontSize,
	)
	s.rect(box{0, 0, l.w, l.h}, "#ffffff", "none", 0)
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

// trunks join the copies of a wire when the nodes stand in several rows.
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

// drops are the lines from nodes up to their wires. They run behind the bars of other wires.
func (s *svg) drops(r row, all []Wire, wires map[string]int) {
	for _, n := range r.nodes {
		for i, c := range n.chips {
			if w, ok := wires[n.Links[i].Wire]; ok {
				s.stroke(c.center(), c.y, c.center(), r.bars[w].mid(), shade(w).line, dashes(all[w]))
			}
		}
	}
}

// dots mark the wire that a line ends at.
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

// dashes are what a tunnel is drawn with.
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

// block writes a name in bold and lines under it in a softer color, below y.
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

// escape makes text of anything: XML has no way to write most control characters.
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
