// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/plan/explain"
	"github.com/weft-net/weft/internal/plural"
)

// MapInput is what is known of the nodes.
type MapInput struct {
	Nodes map[string]explain.Node
	// Silent has why agents did not answer, by node.
	Silent map[string]string
	// Levels are those of NodeLevels; empty until they are known.
	Levels map[string]string
	// Zones are the nodes' zones (topology.kubernetes.io/zone); a node without one is in none.
	Zones map[string]string
	// Focus is what the map shows: everything (""), zone:NAME or node:NAME.
	Focus string
	// Find chooses pods by a part of their name, address or network.
	Find string
	// Pairs are the flows that are drawn.
	Pairs []Pair
	// Columns are how many nodes fit next to each other.
	Columns int
}

// Map is a picture, in units that are pixels at its natural size, and the tables that say the same.
type Map struct {
	Width  int `json:"width"`
	Height int `json:"height"`
	// Focus is what is shown, and Up what a step back shows; nil: this is everything.
	Focus string  `json:"focus,omitempty"`
	Up    *string `json:"up,omitempty"`
	Title string  `json:"title"`
	Buses []Bus   `json:"buses"`
	Boxes []Box   `json:"boxes"`
	Gaps  []Gap   `json:"gaps"`
	// Ways are flows between what is drawn, and OtherFlows the number of others.
	Ways       []Way `json:"ways"`
	OtherFlows int   `json:"otherFlows,omitempty"`
	// Networks are the further networks of the pods, with their numbers.
	Networks []NetworkCount `json:"networks"`
	Nodes    []NodeRow      `json:"nodes"`
	Pods     []PodRow       `json:"pods"`
	// MoreNodes are not in Nodes, MorePods not in Pods.
	MoreNodes int `json:"moreNodes,omitempty"`
	MorePods  int `json:"morePods,omitempty"`
}

// Bus is a link over which nodes reach each other, drawn as lines at which they hang.
type Bus struct {
	Name   string `json:"name"`
	Tunnel bool   `json:"tunnel"`
	Lines  []Line `json:"lines"`
	LabelX int    `json:"labelX"`
	LabelY int    `json:"labelY"`
}

// Line is one.
type Line struct {
	X1 int `json:"x1"`
	Y1 int `json:"y1"`
	X2 int `json:"x2"`
	Y2 int `json:"y2"`
}

// Box is a node or a zone.
type Box struct {
	Kind  string `json:"kind"` // node or zone
	Name  string `json:"name"`
	Focus string `json:"focus"`
	State string `json:"state"` // ok, warn, bad, silent
	Text  string `json:"text"`
	X     int    `json:"x"`
	Y     int    `json:"y"`
	W     int    `json:"w"`
	H     int    `json:"h"`
	Chips []Chip `json:"chips,omitempty"`
	// More pods are not drawn.
	More  int `json:"more,omitempty"`
	MoreY int `json:"moreY,omitempty"`
}

// Chip is a pod or a VM.
type Chip struct {
	Name string `json:"name"`
	// Label is the part of the name that fits.
	Label    string   `json:"label"`
	Kind     string   `json:"kind"`  // pod or vm
	State    string   `json:"state"` // ok, pending, releasing
	Networks []string `json:"networks,omitempty"`
	X        int      `json:"x"`
	Y        int      `json:"y"`
	W        int      `json:"w"`
	H        int      `json:"h"`
}

// Gap is a pair of nodes of which one has no path to the other.
type Gap struct {
	Line
	From string `json:"from"`
	To   string `json:"to"`
}

// NetworkCount is a network and how many pods it has.
type NetworkCount struct {
	Name string `json:"name"`
	Pods int    `json:"pods"`
}

// NodeRow is a node in the table.
type NodeRow struct {
	Node  string   `json:"node"`
	State string   `json:"state"`
	Why   string   `json:"why,omitempty"`
	Addrs []string `json:"addrs"`
	Pods  int      `json:"pods"`
	VMs   int      `json:"vms"`
	Paths []string `json:"paths"`
}

// PodRow is a pod in the table.
type PodRow struct {
	Name     string   `json:"name"`
	Node     string   `json:"node"`
	Kind     string   `json:"kind"`
	State    string   `json:"state"`
	Addrs    []string `json:"addrs"`
	Networks []string `json:"networks"`
}

// ClusterNetwork is the name of the network that has none.
const ClusterNetwork = "cluster network"

// Limits of what is drawn: a browser stays quick with less than 2,000 elements.
const (
	maxCards  = 48
	maxTiles  = 160
	maxChips  = 160 // in all cards
	maxFocus  = 240 // chips of one node
	maxRows   = 200 // of the table of pods
	groupSize = 50  // nodes of a group, where there are no zones
)

// Sizes, in units of the picture.
const (
	margin     = 16
	cardWidth  = 296
	cardHeader = 52
	chipWidth  = 132
	chipHeight = 28
	chipGap    = 8
	busGap     = 24 // between two buses
	rowGap     = 20
	tileWidth  = 140
	tileHeight = 56
	labelLen   = 15
)

// NewMap lays the map out.
func NewMap(in MapInput) Map {
	in.Columns = min(max(in.Columns, 1), 12)
	m := Map{
		Focus: in.Focus, Buses: []Bus{}, Boxes: []Box{}, Gaps: []Gap{}, Ways: []Way{}, Networks: []NetworkCount{}, Nodes: []NodeRow{}, Pods: []PodRow{},
	}
	names := in.names()
	kind, name, _ := strings.Cut(in.Focus, ":")
	everything := ""
	switch kind {
	case "node":
		up := everything
		if len(names) > maxTiles {
			up = in.container(name).String()
		}
		names = slices.DeleteFunc(names, func(n string) bool { return n != name })
		m.Up, m.Title = &up, "node "+name
		m.focused(in, names)
	case "zone":
		z, _ := parseZone(in.Focus)
		up := everything
		if z.zone != "" && z.first != "" {
			up = zoneFocus{zone: z.zone}.String()
		}
		names = in.inZone(z, names)
		m.Up, m.Title = &up, z.title("")+": "+plural.Count(len(names), "node", "nodes")
		m.boxes(in, names)
	default:
		m.Title = plural.Count(len(names), "node", "nodes")
		m.boxes(in, names)
	}
	m.traffic(in)
	m.tables(in, names)
	return m
}

// boxes draws nodes: with their pods, only their names if they are many, or only groups of them.
func (m *Map) boxes(in MapInput, names []string) {
	switch {
	case len(names) > maxTiles:
		m.zones(in, names)
	case len(names) > maxCards:
		m.tiles(in, names)
	default:
		m.cards(in, names)
	}
}

// names returns all nodes, node2 before node10.
func (in MapInput) names() []string {
	all := slices.Collect(maps.Keys(in.Nodes))
	for n := range in.Silent {
		if _, has := in.Nodes[n]; !has {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, compareNames)
	return all
}

// compareNames orders node2 before node10.
func compareNames(a, b string) int {
	whole := cmp.Compare(a, b)
	for a != "" && b != "" {
		x, y := leadingDigits(a), leadingDigits(b)
		if x == "" || y == "" {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		m, n := strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if c := cmp.Or(cmp.Compare(len(m), len(n)), cmp.Compare(m, n)); c != 0 {
			return c
		}
		a, b = a[len(x):], b[len(y):]
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), whole)
}

// leadingDigits returns the digits with which a text begins.
func leadingDigits(s string) string { return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))] }

// state returns the state of a node.
func (in MapInput) state(node string) string {
	if _, silent := in.Silent[node]; silent {
		return "silent"
	}
	return cmp.Or(in.Levels[node], "ok")
}

// counts returns how many pods and VMs a node has.
func (in MapInput) counts(node string) (pods, vms int) {
	for _, p := range in.Nodes[node].Pods {
		if isVM(p) {
			vms++
		} else {
			pods++
		}
	}
	return pods, vms
}

func isVM(p explain.Pod) bool {
	return slices.ContainsFunc(p.Interfaces, func(i explain.Interface) bool { return i.VM })
}

func (in MapInput) text(node string) string {
	if _, silent := in.Silent[node]; silent {
		return "the agent does not answer"
	}
	pods, vms := in.counts(node)
	text := plural.Count(pods, "pod", "pods")
	if vms > 0 {
		text += ", " + plural.Count(vms, "VM", "VMs")
	}
	return text
}

// chips returns a node's pods, those that are searched for, sorted by name.
func (in MapInput) chips(node string) []Chip {
	var out []Chip
	for _, p := range in.Nodes[node].Pods {
		row := podRow(node, p)
		if !row.matches(in.Find) {
			continue
		}
		_, label, _ := strings.Cut(p.Name, "/")
		if runes := []rune(label); len(runes) > labelLen {
			label = string(runes[:labelLen-1]) + "…"
		}
		c := Chip{Name: p.Name, Label: label, Kind: row.Kind, State: row.State, W: chipWidth, H: chipHeight}
		for _, n := range row.Networks {
			if n != ClusterNetwork {
				c.Networks = append(c.Networks, n)
			}
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Chip) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func podRow(node string, p explain.Pod) PodRow {
	row := PodRow{Name: p.Name, Node: node, Kind: "pod", State: "ok", Addrs: []string{}, Networks: []string{}}
	if isVM(p) {
		row.Kind = "vm"
	}
	if p.Stage != "done" && p.Stage != "" {
		row.State = p.Stage
	}
	for _, i := range p.Interfaces {
		network := cmp.Or(i.Network, ClusterNetwork)
		if !slices.Contains(row.Networks, network) {
			row.Networks = append(row.Networks, network)
		}
		for _, a := range i.Addrs {
			row.Addrs = append(row.Addrs, a.Addr().String())
		}
	}
	return row
}

// matches reports whether a part of the row's name, address or network is searched for.
func (r PodRow) matches(find string) bool {
	find = strings.ToLower(strings.TrimSpace(find))
	has := func(s string) bool { return strings.Contains(strings.ToLower(s), find) }
	return find == "" || has(r.Name) || slices.ContainsFunc(r.Addrs, has) || slices.ContainsFunc(r.Networks, has)
}

// tables fills in what the picture shows, as text.
func (m *Map) tables(in MapInput, names []string) {
	count := map[string]int{}
	for _, name := range names {
		n := in.Nodes[name]
		pods, vms := in.counts(name)
		row := NodeRow{
			Node: name, State: in.state(name), Why: in.Silent[name], Addrs: []string{}, Pods: pods, VMs: vms, Paths: []string{},
		}
		for _, a := range n.Addrs {
			row.Addrs = append(row.Addrs, a.String())
		}
		for _, b := range n.PeerLinks() {
			row.Paths = append(row.Paths, fmt.Sprintf("%s to %s", label(b), plural.Count(b.Peers, "node", "nodes")))
		}
		for _, g := range m.Gaps {
			if g.From == name {
				row.Paths = append(row.Paths, "no path to "+g.To)
			}
		}
		if len(m.Nodes) < maxTiles {
			m.Nodes = append(m.Nodes, row)
		} else {
			m.MoreNodes++
		}
		for _, p := range n.Pods {
			r := podRow(name, p)
			if !r.matches(in.Find) {
				continue
			}
			for _, network := range r.Networks {
				count[network]++
			}
			m.Pods = append(m.Pods, r)
		}
	}
	slices.SortFunc(m.Pods, func(a, b PodRow) int { return cmp.Compare(a.Name, b.Name) })
	if len(m.Pods) > maxRows {
		m.MorePods = len(m.Pods) - maxRows
		m.Pods = m.Pods[:maxRows]
	}
	for _, n := range slices.Sorted(maps.Keys(count)) {
		m.Networks = append(m.Networks, NetworkCount{n, count[n]})
	}
}
