// SPDX-License-Identifier: Apache-2.0

// Package view computes what the views of weft's page show, from what agents and the datastore say: values that are sent as
// JSON, and positions. It sends no requests.
package view

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/node/nodestatus"
)

// Health is the state of the cluster, as weft status prints it.
type Health struct {
	Good bool `json:"good"`
	// Answered of Nodes agents have answered.
	Answered int       `json:"answered"`
	Nodes    int       `json:"nodes"`
	Rows     []Row     `json:"rows"`
	Findings []Finding `json:"findings"`
	// Bad and Warnings are the numbers of all findings, and MoreFindings are not in Findings.
	Bad          int `json:"bad"`
	Warnings     int `json:"warnings"`
	MoreFindings int `json:"moreFindings,omitempty"`
	// ByNode are the nodes, those that are not ok first.
	ByNode []NodeHealth `json:"byNode"`
	// DeniedRates are the packets per second that policies denied, while the page was open.
	DeniedRates Rates `json:"deniedRates"`
}

// Row is a name and a text.
type Row struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Finding is something that is wrong, or was not checked.
type Finding struct {
	Level string `json:"level"` // bad, warn or skip
	Where string `json:"where"`
	What  string `json:"what"`
	Hint  string `json:"hint,omitempty"`
}

// maxFindings limits the findings that are sent.
const maxFindings = 300

// NodeHealth is a node's row.
type NodeHealth struct {
	Node    string `json:"node"`
	Version string `json:"version"`
	// State is ok, the level of the node's worst finding, or silent: the agent did not answer, and no more is known.
	State string `json:"state"`
	// Attachments are finished ones of all, Mesh reached peers of all, Connections a share of the table.
	Attachments string `json:"attachments"`
	VMs         int    `json:"vms"`
	Mesh        string `json:"mesh"`
	MTU         int    `json:"mtu,omitempty"`
	Denied      uint64 `json:"denied"`
	Connections string `json:"connections"`
	Repairs     uint64 `json:"repairs"`
}

// NewHealth returns the view of a cluster's state.
func NewHealth(c nodestatus.Cluster, denied Rates) Health {
	h := Health{
		DeniedRates: denied,
		Good:        c.Good, Answered: c.Answered, Nodes: c.Nodes, Rows: []Row{}, Findings: []Finding{}, ByNode: []NodeHealth{},
	}
	for _, r := range c.Rows() {
		h.Rows = append(h.Rows, Row{r.Name, r.Text})
	}
	for _, f := range c.FindingTexts() {
		switch f.Level {
		case nodestatus.Bad:
			h.Bad++
		case nodestatus.Warn:
			h.Warnings++
		}
		if len(h.Findings) == maxFindings {
			h.MoreFindings++
			continue
		}
		h.Findings = append(h.Findings, Finding{string(f.Level), f.Where, f.What, f.Hint})
	}
	levels := NodeLevels(c)
	for _, s := range c.Statuses {
		n := NodeHealth{
			Node: s.Node, Version: s.Version, State: levels[s.Node], VMs: s.VMs, MTU: s.MTU, Denied: s.Denied, Repairs: s.Repairs,
			Attachments: fmt.Sprintf("%d of %d", s.Attachments-s.Unfinished-s.Broken, s.Attachments),
			Mesh:        fmt.Sprintf("%d of %d", s.Reached, s.Peers),
			Connections: "not tracked",
		}
		if s.MaxConnections > 0 {
			n.Connections = fmt.Sprintf("%d %%", 100*s.Connections/s.MaxConnections)
		}
		h.ByNode = append(h.ByNode, n)
	}
	for _, f := range c.Findings { // of nodes whose agents did not answer
		if f.Node != "" && !slices.ContainsFunc(h.ByNode, func(n NodeHealth) bool { return n.Node == f.Node }) {
			h.ByNode = append(h.ByNode, NodeHealth{Node: f.Node, State: "silent"})
		}
	}
	rank := []string{"silent", string(nodestatus.Bad), string(nodestatus.Warn)}
	slices.SortStableFunc(h.ByNode, func(a, b NodeHealth) int {
		return cmp.Or(cmp.Compare(uint(slices.Index(rank, a.State)), uint(slices.Index(rank, b.State))), compareNames(a.Node, b.Node))
	})
	return h
}

// NodeLevels returns the level of each node's worst finding, ok if there is none but skipped checks.
func NodeLevels(c nodestatus.Cluster) map[string]string {
	out := map[string]string{}
	for _, s := range c.Statuses {
		out[s.Node] = "ok"
	}
	for _, f := range c.Findings { // worst first
		if f.Node != "" && f.Level != nodestatus.Skip && (out[f.Node] == "ok" || out[f.Node] == "") {
			out[f.Node] = string(f.Level)
		}
	}
	return out
}
