// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"math"
	"unicode/utf8"
)

// All lengths are in pixels. The glyphs of a monospace font are 0.6 of its size wide, so widths can be computed without
// the font; letter is a little more, to be safe.
const (
	fontSize  = 12.0
	letter    = 7.4
	leading   = 16.0
	pad       = 10.0
	gap       = 22.0
	barHeight = 24.0
	barGap    = 12.0
	dropSpace = 26.0 // between the lowest bar and the nodes
	titleSize = 17.0
	// rowWidth is how wide a row of nodes may grow before the next begins.
	rowWidth = 1300.0
)

// box is a rectangle.
type box struct{ x, y, w, h float64 }

// block is lines of text under a name.
type block struct {
	name  string
	lines []string
}

func (b block) width() float64 {
	w := textWidth(b.name)
	for _, l := range b.lines {
		w = math.Max(w, textWidth(l))
	}
	return w
}

func (b block) height() float64 {
	n := len(b.lines)
	if b.name != "" {
		n++
	}
	return float64(n) * leading
}

func textWidth(s string) float64 { return float64(utf8.RuneCountInString(s)) * letter }

// placedNode is a node with the positions of its box and its parts.
type placedNode struct {
	Node
	box
	chips []box // one for each link, along the upper edge
	label box
	pods  []box
}

// row is a row of nodes under its own copy of the wires.
type row struct {
	bars  []box
	nodes []placedNode
}

// layout is a diagram with positions.
type layout struct {
	Diagram
	rows []row
	w, h float64
}

func (d Diagram) layout() layout {
	l := layout{Diagram: d}
	head := titleSize + 2*pad + float64(len(d.Lines))*leading
	left := pad
	if len(d.Wires) > 0 {
		left = gap + float64(len(d.Wires))*barGap // room for the trunks that join the rows
	}
	y := head + pad
	for _, nodes := range d.wrap() {
		r := row{}
		x, bottom := left+gap, 0.0
		top := y + float64(len(d.Wires))*(barHeight+barGap) + dropSpace
		if len(d.Wires) == 0 {
			top = y
		}
		for _, n := range nodes {
			n.move(x, top)
			r.nodes = append(r.nodes, n)
			x += n.w + gap
			bottom = math.Max(bottom, n.y+n.h)
		}
		for i := range d.Wires {
			r.bars = append(r.bars, box{left, y + float64(i)*(barHeight+barGap), x - left, barHeight})
		}
		l.rows = append(l.rows, r)
		l.w = math.Max(l.w, x)
		y = math.Max(bottom, top) + 2*gap
	}
	for _, w := range d.Wires {
		l.w = math.Max(l.w, left+block{w.Name, nil}.width()+textWidth(join(w.Lines))+4*pad)
	}
	l.w = math.Max(l.w, block{"", d.Lines}.width()+2*pad)
	l.w = math.Max(l.w, textWidth(d.Title)*titleSize/fontSize+2*pad) + pad
	for i := range l.rows {
		for j := range l.rows[i].bars {
			l.rows[i].bars[j].w = l.w - left - pad
		}
	}
	l.h = y - gap
	return l
}

// wrap computes the nodes' sizes and breaks them into rows.
func (d Diagram) wrap() [][]placedNode {
	rows := [][]placedNode{nil}
	width := 0.0
	for _, n := range d.Nodes {
		p := size(n)
		if width > 0 && width+p.w > rowWidth {
			rows, width = append(rows, nil), 0
		}
		rows[len(rows)-1] = append(rows[len(rows)-1], p)
		width += p.w + gap
	}
	return rows
}

// size positions a node's parts in a box at 0,0.
func size(n Node) placedNode {
	p := placedNode{Node: n}
	x, y := pad, 0.0
	for _, l := range n.Links {
		b := block{l.Name, l.Lines}
		c := box{x, 0, b.width() + pad, b.height() + pad/2}
		p.chips = append(p.chips, c)
		x += c.w + pad
		y = math.Max(y, c.h)
	}
	inner := x - pad
	y += pad
	b := block{n.Name, n.Lines}
	p.label = box{pad, y, b.width(), b.height()}
	inner = math.Max(inner, pad+p.label.w)
	y += p.label.h + pad
	cell := box{}
	for _, pod := range n.Pods {
		b := block{pod.Name, pod.Lines}
		cell.w, cell.h = math.Max(cell.w, b.width()+2*pad), math.Max(cell.h, b.height()+pad)
	}
	columns := columnsFor(len(n.Pods), inner, cell.w)
	for i := range n.Pods {
		c := cell
		c.x = pad + float64(i%columns)*(cell.w+pad)
		c.y = y + float64(i/columns)*(cell.h+pad)
		p.pods = append(p.pods, c)
		inner = math.Max(inner, c.x+c.w)
		if i == len(n.Pods)-1 {
			y = c.y + c.h + pad
		}
	}
	p.w, p.h = inner+pad, y
	return p
}

// columnsFor returns the number of columns of pods: as many as fit into the width of the node's links and label, more if
// the box would be much higher than wide.
func columnsFor(pods int, inner, cell float64) int {
	if pods == 0 || cell == 0 {
		return 1
	}
	fit := int((inner + pad) / (cell + pad))
	return max(1, min(pods, max(fit, int(math.Ceil(math.Sqrt(float64(pods)/4))))))
}

func (p *placedNode) move(x, y float64) {
	p.box.x, p.box.y = p.box.x+x, p.box.y+y
	p.label.x, p.label.y = p.label.x+x, p.label.y+y
	for i := range p.chips {
		p.chips[i].x, p.chips[i].y = p.chips[i].x+x, p.chips[i].y+y
	}
	for i := range p.pods {
		p.pods[i].x, p.pods[i].y = p.pods[i].x+x, p.pods[i].y+y
	}
}
