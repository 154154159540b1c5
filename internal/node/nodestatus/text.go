// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"fmt"
	"math/big"
	"strings"

	"github.com/weft-net/weft/internal/plural"
)

// Row is a part of the cluster in words.
type Row struct{ Name, Text string }

// Rows returns the cluster's numbers in words.
func (c Cluster) Rows() []Row {
	var out []Row
	row := func(name, format string, args ...any) { out = append(out, Row{name, fmt.Sprintf(format, args...)}) }
	row("agents", "%d of %d answer, version %s", c.Answered, c.Nodes, versionsText(c.Versions))
	s := c.Total
	row("attachments", "%d of pods: %d with network, %d broken, %d pending, %d being removed",
		s.Attachments, s.Attachments-s.Unfinished-s.Broken, s.Broken, s.Pending, s.Releasing)
	if s.Peers > 0 {
		mtu := ""
		if s.MTU > 0 {
			mtu = fmt.Sprintf(", pods' MTU %d", s.MTU)
		}
		row("mesh", "%d of %d paths between nodes%s", s.Reached, s.Peers, mtu)
	}
	if p := s.Worst; p != nil {
		fault := ""
		if p.Fault != "" {
			fault = ", " + p.Fault + " fault" // glossary: the column of weft mesh ping
		}
		row("worst path", "%s to %s: %d of %d bytes pass%s", p.Node, p.Peer, p.Passes, p.MTU, fault)
	}
	row("policies", "%d, %d not enforced in full, %s denied, %d per minute now",
		s.Policies, s.Incomplete, plural.Count(int(s.Denied), "packet", "packets"), s.DeniedPerMinute)
	for _, p := range s.Pools {
		left := ""
		if p.Size != nil && p.Left != nil {
			left = fmt.Sprintf("; %s of %s left in the pool", number(p.Left), number(p.Size))
		}
		row("pool "+p.Name, "%s of nodes, %s used, %d free%s", plural.Count(p.Blocks, "block", "blocks"),
			plural.Count(p.Allocated, "address", "addresses"), p.Free, left)
	}
	row("VMs", "%d, %d migrating", s.VMs, s.Migrations)
	if s.MaxConnections > 0 {
		row("connections", "%d %% of the table of %s, the fullest", 100*s.Connections/s.MaxConnections, c.Fullest)
	}
	if f := s.FastPath; f != nil {
		row("fast path", "%s", f.text())
	}
	row("repairs", "%d since the agents' start", s.Repairs)
	return out
}

// text is the state of the fast path in words.
func (f FastPath) text() string {
	text := f.Mode
	if f.Way != "" && f.Way != f.Mode {
		text += " (" + f.Way + ")"
	}
	text += fmt.Sprintf(" on %s, at %s", plural.Count(f.Nodes, "node", "nodes"), plural.Count(f.Links, "link", "links"))
	if f.Way != "flowtable" { // the kernel does not count its packets
		text += ", " + plural.Count(int(f.Packets), "packet", "packets")
	}
	if f.Liberal > 0 {
		text += fmt.Sprintf("; nf_conntrack_tcp_be_liberal is set on %s for it", plural.Count(f.Liberal, "node", "nodes"))
	}
	if f.Lacks != "" {
		text += "; " + f.Lacks
	}
	return text
}

// FindingText is a finding of one or several nodes in words.
type FindingText struct {
	Level Level
	// Where is the node or the nodes, What the check and its message.
	Where, What, Hint string
}

// FindingTexts returns the findings, worst first, each once.
func (c Cluster) FindingTexts() []FindingText {
	var out []FindingText
	for _, g := range c.grouped() {
		out = append(out, FindingText{Level: g.Level, Where: g.where(), What: g.Check + ": " + g.Message, Hint: g.Hint})
	}
	return out
}

// number formats a number of addresses; a very large one as a power of two.
func number(n *big.Int) string {
	const exact = 32 // bits
	if n.BitLen() <= exact {
		return n.String()
	}
	return fmt.Sprintf("2^%d", new(big.Int).Sub(n, big.NewInt(1)).BitLen())
}

// group is a finding that several nodes have.
type group struct {
	Finding
	nodes []string
}

// grouped returns the findings in order, each once.
func (c Cluster) grouped() []*group {
	var out []*group
	at := map[Finding]*group{}
	for _, f := range c.Findings {
		node := f.Node
		f.Node = ""
		g := at[f]
		if g == nil {
			g = &group{Finding: f}
			at[f] = g
			out = append(out, g)
		}
		if node != "" {
			g.nodes = append(g.nodes, node)
		}
	}
	return out
}

// where names the nodes; of many the first ones.
func (g group) where() string {
	const named = 3
	switch n := len(g.nodes); {
	case n == 0:
		return "cluster"
	case n > named:
		return fmt.Sprintf("%s and %d more nodes", strings.Join(g.nodes[:named], ", "), n-named)
	}
	return strings.Join(g.nodes, ", ")
}
