// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/plan/explain"
	"github.com/weft-net/weft/internal/plural"
)

// label names a link with what goes over it.
func label(l explain.PeerLink) string {
	if l.Tunnel {
		return "tunnel " + l.Link
	}
	return "routes over " + l.Link
}

// cards draws nodes with their pods, hanging at buses.
func (m *Map) cards(in MapInput, names []string) {
	var buses []explain.PeerLink
	for _, n := range names {
		for _, l := range in.Nodes[n].PeerLinks() {
			if !slices.ContainsFunc(buses, func(o explain.PeerLink) bool { return o.Link == l.Link }) {
				buses = append(buses, l)
			}
		}
	}
	slices.SortFunc(buses, func(a, b explain.PeerLink) int { return cmp.Compare(a.Link, b.Link) })
	columns := max(1, min(in.Columns, len(names)))
	trunk := margin + busGap*len(buses) // the buses of all rows are joined at the left
	perCard := maxChips / max(1, len(names))
	perCard -= perCard % 2
	for _, l := range buses {
		m.Buses = append(m.Buses, Bus{Name: label(l), Tunnel: l.Tunnel, Lines: []Line{}})
	}
	y := margin
	for first := 0; first < len(names); first += columns {
		row := names[first:min(first+columns, len(names))]
		y += busGap // a label's height
		top := y + busGap*len(buses) + rowGap/2
		tallest := 0
		for i, name := range row {
			b := Box{
				Kind: "node", Name: name, Focus: "node:" + name, State: in.state(name), Text: in.text(name),
				X: trunk + i*(cardWidth+rowGap), Y: top, W: cardWidth,
			}
			b.fill(in.chips(name), max(2, perCard), 2)
			tallest = max(tallest, b.H)
			m.Boxes = append(m.Boxes, b)
			for j, l := range buses {
				if slices.ContainsFunc(in.Nodes[name].PeerLinks(), func(o explain.PeerLink) bool { return o.Link == l.Link }) {
					x := b.X + cardWidth/2 + (j*2-len(buses)+1)*busGap/2
					m.Buses[j].Lines = append(m.Buses[j].Lines, Line{x, y + busGap*j, x, top})
				}
			}
		}
		right := trunk + len(row)*(cardWidth+rowGap) - rowGap
		for j := range buses {
			m.Buses[j].Lines = append(m.Buses[j].Lines, Line{margin + busGap*j, y + busGap*j, right, y + busGap*j})
			if first == 0 {
				m.Buses[j].LabelX, m.Buses[j].LabelY = trunk, y+busGap*j-5
			} else {
				last := &m.Buses[j].Lines[0] // the trunk
				last.Y2 = y + busGap*j
			}
			if first == 0 && len(names) > columns {
				m.Buses[j].Lines = append([]Line{{margin + busGap*j, y + busGap*j, margin + busGap*j, y + busGap*j}},
					m.Buses[j].Lines...)
			}
		}
		m.Width = max(m.Width, right+margin)
		y = top + tallest + rowGap
	}
	m.Height = y + margin - rowGap
	m.gaps(in, names)
}

// fill places chips in a box, most of them, and computes its height.
func (b *Box) fill(chips []Chip, most, columns int) {
	if len(chips) > most {
		b.More = len(chips) - most
		chips = chips[:most]
	}
	for i := range chips {
		chips[i].X = b.X + 12 + i%columns*(chipWidth+chipGap)
		chips[i].Y = b.Y + cardHeader + i/columns*(chipHeight+chipGap)
	}
	b.Chips = chips
	rows := (len(chips) + columns - 1) / columns
	b.H = cardHeader + rows*(chipHeight+chipGap) + 4
	if b.More > 0 {
		b.MoreY = b.Y + b.H + 12
		b.H += 24
	}
}

// gaps finds pairs of nodes of which one has no path to the other.
func (m *Map) gaps(in MapInput, names []string) {
	if len(m.Buses) == 0 {
		return // there is no mesh
	}
	for i, from := range names {
		n, known := in.Nodes[from]
		if !known || n.Links != nil {
			continue // its peers are not known by name
		}
		for j, to := range names {
			other, answers := in.Nodes[to]
			if i == j || !answers || !routed(other) ||
				slices.ContainsFunc(n.Peers, func(p explain.Peer) bool { return p.Name == to && len(p.Paths) > 0 }) {
				continue
			}
			a, b := m.Boxes[i], m.Boxes[j]
			m.Gaps = append(m.Gaps, Gap{Line{a.X + a.W/2, a.Y + cardHeader/2, b.X + b.W/2, b.Y + cardHeader/2}, from, to})
		}
	}
}

// routed reports whether a node has a pod to which the mesh of others leads.
func routed(n explain.Node) bool {
	return slices.ContainsFunc(n.Pods, func(p explain.Pod) bool {
		return p.Stage == "done" && slices.ContainsFunc(p.Interfaces, func(i explain.Interface) bool {
			return i.Network == "" && len(i.Addrs) > 0
		})
	})
}

// tiles draws the names of many nodes.
func (m *Map) tiles(in MapInput, names []string) {
	boxes := make([]Box, 0, len(names))
	for _, name := range names {
		boxes = append(boxes, Box{
			Kind: "node", Name: name, Focus: "node:" + name, State: in.state(name), Text: in.text(name),
		})
	}
	m.grid(boxes, in.Columns)
}

// zones draws zones, and groups of nodes.
func (m *Map) zones(in MapInput, names []string) {
	var boxes []Box
	at := map[string]int{}
	count := map[string][3]int{} // nodes, pods, not ok
	rank := []string{"ok", "warn", "bad", "silent"}
	within, _ := parseZone(m.Focus)
	groups := in.groups(within.zone)
	for _, name := range names {
		z := zoneFocus{zone: in.Zones[name]}
		if m.Focus != "" || z.zone == "" {
			z = groups[name]
		}
		if _, has := at[z.String()]; !has {
			at[z.String()] = len(boxes)
			boxes = append(boxes, Box{Kind: "zone", Name: z.title(within.zone), Focus: z.String(), State: "ok"})
		}
		b := &boxes[at[z.String()]]
		state := in.state(name)
		if slices.Index(rank, state) > slices.Index(rank, b.State) {
			b.State = state
		}
		c := count[z.String()]
		c[0]++
		c[1] += len(in.Nodes[name].Pods)
		if state != "ok" {
			c[2]++
		}
		count[z.String()] = c
	}
	slices.SortStableFunc(boxes, func(a, b Box) int { return compareNames(a.Name, b.Name) })
	for i := range boxes {
		c := count[boxes[i].Focus]
		boxes[i].Text = plural.Count(c[0], "node", "nodes") + ", " + plural.Count(c[1], "pod", "pods")
		if c[2] > 0 {
			boxes[i].Text += ", " + fmt.Sprintf("%d not ok", c[2])
		}
	}
	m.grid(boxes, in.Columns)
	for i := range m.Boxes { // their names and texts are longer
		m.Boxes[i].W = tileWidth*2 - chipGap
		m.Boxes[i].X = margin + i%in.Columns*tileWidth*2
	}
	m.Width = margin*2 + in.Columns*tileWidth*2 - chipGap
}

// grid places tiles.
func (m *Map) grid(boxes []Box, columns int) {
	columns *= 2 // a tile is half of a card
	if len(boxes) > 0 && boxes[0].Kind == "zone" {
		columns /= 2
	}
	for i := range boxes {
		boxes[i].X, boxes[i].Y = margin+i%columns*(tileWidth+chipGap), margin+i/columns*(tileHeight+chipGap)
		boxes[i].W, boxes[i].H = tileWidth, tileHeight
	}
	m.Boxes = boxes
	m.Width = margin*2 + columns*(tileWidth+chipGap)
	m.Height = margin*2 + (len(boxes)+columns-1)/columns*(tileHeight+chipGap)
}

// focused draws one node with all its pods.
func (m *Map) focused(in MapInput, names []string) {
	columns := max(2, in.Columns*2)
	for _, name := range names {
		b := Box{
			Kind: "node", Name: name, Focus: in.Focus, State: in.state(name), Text: in.text(name),
			X: margin, Y: margin, W: 12 + columns*(chipWidth+chipGap) + 4,
		}
		b.fill(in.chips(name), maxFocus, columns)
		m.Boxes = append(m.Boxes, b)
		m.Width, m.Height = b.W+2*margin, b.H+2*margin
	}
	if len(names) == 0 {
		m.Width, m.Height = cardWidth, cardHeader
	}
}
