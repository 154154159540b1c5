// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/plan/policy/reach"
	"github.com/weft-net/weft/internal/plural"
)

// Matrix is which pods policies allow to connect to which: by namespace, or by groups of the pods of two namespaces.
type Matrix struct {
	// Network is a further network whose addresses connect; empty: the cluster's. Networks are the further networks that
	// pods have addresses on, or that policies name.
	Network  string         `json:"network,omitempty"`
	Networks []NetworkCount `json:"networks"`
	// From and To are the namespaces whose groups are shown; empty: the namespaces of the cluster are.
	From string      `json:"from,omitempty"`
	To   string      `json:"to,omitempty"`
	Rows []MatrixEnd `json:"rows"`
	Cols []MatrixEnd `json:"cols"`
	// Cells[row][column] are what policies allow.
	Cells [][]MatrixCell `json:"cells"`
	// MoreRows and MoreCols are not shown.
	MoreRows int `json:"moreRows,omitempty"`
	MoreCols int `json:"moreCols,omitempty"`
	// Empty: no pod has an address yet on the network.
	Empty bool `json:"empty,omitempty"`
	// Invalid are what of the objects that policies need cannot be read: only their valid parts count.
	Invalid []string `json:"invalid"`
}

// MatrixEnd is a namespace, a group of pods, or what is outside.
type MatrixEnd struct {
	Name string `json:"name"`
	// Text has the number of pods and, of a group, some names.
	Text string `json:"text"`
	// Namespace is set for a namespace, whose groups can be shown.
	Namespace string `json:"namespace,omitempty"`
}

// MatrixCell is what policies allow from a row to a column.
type MatrixCell struct {
	// Verdict is all, some, none, or empty: there are no two ends.
	Verdict string `json:"verdict"`
	// Text are the ports that are allowed, or how many pairs of groups may connect.
	Text string `json:"text,omitempty"`
	// FromPod and ToPod are an example, of groups.
	FromPod string `json:"fromPod,omitempty"`
	ToPod   string `json:"toPod,omitempty"`
}

// maxMatrix limits rows and columns.
const maxMatrix = 20

// outsideName is the row and the column of what is outside.
const outsideName = "outside of the cluster"

// NewMatrix returns the matrix of all namespaces that have find in their names, or that of the groups of two namespaces.
func NewMatrix(in reach.Input, from, to, find string) Matrix {
	r := reach.New(in)
	m := Matrix{
		Network: in.Network, Networks: networksOf(in), Rows: []MatrixEnd{}, Cols: []MatrixEnd{}, Cells: [][]MatrixCell{}, Empty: len(r.Groups) < 2,
		Invalid: []string{},
	}
	if from != "" && to != "" {
		m.From, m.To = from, to
		m.groups(r)
		return m
	}
	m.namespaces(r, find)
	return m
}

// networksOf returns the further networks that pods have addresses on, with their number, and those that policies name.
func networksOf(in reach.Input) []NetworkCount {
	pods := map[string]map[string]bool{}
	add := func(network string) map[string]bool {
		if pods[network] == nil {
			pods[network] = map[string]bool{}
		}
		return pods[network]
	}
	for _, p := range in.Policies {
		for _, network := range p.Networks {
			add(network)
		}
	}
	for _, e := range in.Endpoints {
		if e.Network != "" && !e.Standby {
			add(e.Network)[e.Pod.String()] = true
		}
	}
	out := []NetworkCount{}
	for _, network := range slices.SortedFunc(maps.Keys(pods), compareNames) {
		out = append(out, NetworkCount{network, len(pods[network])})
	}
	return out
}

// in returns the groups of a namespace, or of what is outside.
func in(r *reach.Reach, name string) (out []*reach.Group) {
	for _, g := range r.Groups {
		if g.Namespace == name && !g.Outside || g.Outside && name == outsideName {
			out = append(out, g)
		}
	}
	return out
}

func podsOfGroups(groups []*reach.Group) (n int) {
	for _, g := range groups {
		n += len(g.Pods)
	}
	return n
}

func (m *Matrix) namespaces(r *reach.Reach, find string) {
	var names []string
	for _, g := range r.Groups {
		if !slices.Contains(names, g.Namespace) && !g.Outside && (PodRow{Name: g.Namespace}).matches(find) {
			names = append(names, g.Namespace)
		}
	}
	slices.SortFunc(names, compareNames)
	m.MoreRows = max(0, len(names)-maxMatrix)
	names = names[:len(names)-m.MoreRows]
	m.MoreCols = m.MoreRows
	if len(names) > 0 {
		names = slices.Insert(names, 0, outsideName)
	}
	for _, name := range names {
		groups := in(r, name)
		end := MatrixEnd{Name: name, Namespace: name}
		if name != outsideName {
			end.Text = plural.Count(podsOfGroups(groups), "pod", "pods") + ", " + plural.Count(len(groups), "group", "groups")
		}
		m.Rows = append(m.Rows, end)
	}
	m.Cols = m.Rows
	for _, from := range names {
		row := []MatrixCell{}
		for _, to := range names {
			row = append(row, sum(r, in(r, from), in(r, to)))
		}
		m.Cells = append(m.Cells, row)
	}
}

// sum returns what groups may: all or none if that is so for each pair, else the ports if they are those of each pair.
func sum(r *reach.Reach, from, to []*reach.Group) (c MatrixCell) {
	allowed, pairs := 0, 0
	var texts []string
	for _, a := range from {
		for _, b := range to {
			one, ok := r.Connection(a, b)
			if !ok {
				continue
			}
			pairs++
			if one.Verdict != reach.None {
				allowed++
			}
			text := string(one.Verdict)
			if one.Verdict == reach.Some {
				text = ports(one)
			}
			if !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
		}
	}
	switch {
	case pairs == 0:
		return c
	case len(texts) > 1:
		return MatrixCell{Verdict: string(reach.Some), Text: fmt.Sprintf("%d of %d pairs", allowed, pairs)}
	case texts[0] == string(reach.All) || texts[0] == string(reach.None):
		return MatrixCell{Verdict: texts[0]}
	}
	return MatrixCell{Verdict: string(reach.Some), Text: texts[0]}
}

// ports lists the ports of a connection, not all of many.
func ports(c reach.Connection) string {
	const most = 4
	if len(c.Ports) <= most {
		return strings.Join(c.Ports, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(c.Ports[:most-1], ", "), len(c.Ports)-most+1)
}

func (m *Matrix) groups(r *reach.Reach) {
	from, to := in(r, m.From), in(r, m.To)
	others := func(groups int) string {
		if groups == 1 {
			return "all pods"
		}
		return "other pods" // policies select them by no label that they have
	}
	otherRows, otherCols := others(len(from)), others(len(to))
	m.MoreRows, m.MoreCols = max(0, len(from)-maxMatrix), max(0, len(to)-maxMatrix)
	from, to = from[:len(from)-m.MoreRows], to[:len(to)-m.MoreCols]
	for _, g := range from {
		m.Rows = append(m.Rows, groupEnd(g, otherRows))
	}
	for _, g := range to {
		m.Cols = append(m.Cols, groupEnd(g, otherCols))
	}
	for _, a := range from {
		row := []MatrixCell{}
		for _, b := range to {
			c, ok := r.Connection(a, b)
			cell := MatrixCell{}
			if ok {
				cell = MatrixCell{Verdict: string(c.Verdict), FromPod: example(a, 0), ToPod: example(b, 0)}
				if c.Verdict == reach.Some {
					cell.Text = ports(c)
				}
				if a == b {
					cell.ToPod = example(b, 1)
				}
			}
			row = append(row, cell)
		}
		m.Cells = append(m.Cells, row)
	}
}

func groupEnd(g *reach.Group, others string) MatrixEnd {
	if g.Outside {
		return MatrixEnd{Name: outsideName}
	}
	const most = 2
	text := strings.Join(g.Pods[:min(most, len(g.Pods))], ", ")
	if len(g.Pods) > most {
		text += fmt.Sprintf(" and %d more", len(g.Pods)-most)
	}
	return MatrixEnd{Name: cmp.Or(strings.Join(g.Labels, ", "), others), Text: text}
}

// example returns a pod of a group; outside is none.
func example(g *reach.Group, n int) string {
	if n >= len(g.Pods) {
		return ""
	}
	return g.Namespace + "/" + g.Pods[n]
}
