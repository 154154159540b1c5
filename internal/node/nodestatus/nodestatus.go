// SPDX-License-Identifier: Apache-2.0

// Package nodestatus is the state of a node's agent in a few numbers, and of a cluster as the sum of its nodes. Merge is
// pure; the agent fills in a Status.
package nodestatus

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// Level is how bad a finding is.
type Level string

// The levels, worst first. Skip: something was not checked, and the message says why; it may be wrong.
const (
	Bad  Level = "bad"
	Warn Level = "warn"
	Skip Level = "skip"
)

// rank is smaller for worse levels.
func (l Level) rank() int { return slices.Index([]Level{Bad, Warn, Skip}, l) }

// Finding is something that is wrong, or that was not checked.
type Finding struct {
	Level Level  `json:"level"`
	Node  string `json:"node,omitempty"`
	// Check names what was checked: agent, attachments, mesh, "mesh ping", "ipam check", policy, vms, conntrack, or "doctor"
	// and the name of its check.
	Check   string `json:"check"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Status is the state of a node's agent.
type Status struct {
	Node    string `json:"node"`
	Version string `json:"version"`
	// Attachments of pods in the ledger, and those that are not finished: Pending have no result yet, Releasing are being
	// removed. Broken are finished and differ from their result.
	Attachments int `json:"attachments"`
	Unfinished  int `json:"unfinished"`
	Pending     int `json:"pending"`
	Releasing   int `json:"releasing"`
	Broken      int `json:"broken"`
	// VMs on the node, and those that migrate to it now.
	VMs        int `json:"vms"`
	Migrations int `json:"migrations"`
	// Peers of the mesh, and those with a path; MTU of pods in bytes, 0 without a mesh.
	Peers   int `json:"peers"`
	Reached int `json:"reached"`
	MTU     int `json:"mtu,omitempty"`
	// Worst is the worst path to a peer that was probed, nil if none was.
	Worst *Path `json:"worst,omitempty"`
	// Policies in force, those that are not enforced in full, the packets that policies denied since the agent's start, and
	// those that they deny per minute now.
	Policies        int    `json:"policies"`
	Incomplete      int    `json:"incompletePolicies"`
	Denied          uint64 `json:"deniedPackets"`
	DeniedPerMinute uint64 `json:"deniedPerMinute"`
	// Blocks of address pools, and their addresses that are free and allocated.
	Blocks    int `json:"blocks"`
	Free      int `json:"freeAddresses"`
	Allocated int `json:"allocatedAddresses"`
	// Pools are these numbers by pool, sorted by name.
	Pools []Pool `json:"pools,omitempty"`
	// Connections are tracked, MaxConnections may be; 0: nothing tracks connections.
	Connections    int `json:"connections"`
	MaxConnections int `json:"maxConnections"`
	// FastPath is the path of established flows, nil if network.fastPath is off.
	FastPath *FastPath `json:"fastPath,omitempty"`
	// Repairs since the agent's start.
	Repairs  uint64    `json:"repairs"`
	Findings []Finding `json:"findings"`
}

// FastPath is the state of network.fastPath, or the sum of several nodes.
type FastPath struct {
	// Mode is the setting, and Nodes those that use it. Way is ebpf or flowtable, or both with a comma, and Lacks why auto
	// has not taken an earlier one.
	Mode  string `json:"mode"`
	Way   string `json:"way,omitempty"`
	Lacks string `json:"lacks,omitempty"`
	Nodes int    `json:"nodes"`
	// Links of the path, and its packets by eBPF as the kernel has them: it merges those of a connection.
	Links   int    `json:"links"`
	Packets uint64 `json:"packets"`
	// Liberal is the number of nodes whose setting nf_conntrack_tcp_be_liberal is changed for it.
	Liberal int `json:"liberal"`
}

// Pool is the use of a pool.
type Pool struct {
	Name string `json:"name"`
	// Blocks of nodes, and their addresses that are free and allocated.
	Blocks    int `json:"blocks"`
	Free      int `json:"free"`
	Allocated int `json:"allocated"`
	// Size is the number of the pool's addresses, and Left of those that no pod has and no rule excludes, in nodes' blocks
	// or not; nil if the datastore was not read.
	Size *big.Int `json:"size,omitempty"`
	Left *big.Int `json:"left,omitempty"`
}

// Path is a path to a peer that was probed.
type Path struct {
	Node string `json:"node"`
	Peer string `json:"peer"`
	// MTU of pods, and the largest packet that arrives, in bytes; 0 if none does.
	MTU    int `json:"mtu"`
	Passes int `json:"passes"`
	// Fault is what is wrong with it, one of weft mesh ping; empty: nothing.
	Fault string `json:"fault,omitempty"`
}

// Worse reports whether a path is worse than another one, which may be nil: a fault, then the smaller packets.
func (p Path) Worse(than *Path) bool {
	if than == nil {
		return true
	}
	if (p.Fault != "") != (than.Fault != "") {
		return p.Fault != ""
	}
	return p.Passes < than.Passes
}

// Cluster is the state of all nodes.
type Cluster struct {
	Good bool `json:"good"`
	// Nodes that have an agent, and those whose agent answered.
	Nodes    int            `json:"nodes"`
	Answered int            `json:"answered"`
	Versions map[string]int `json:"versions"`
	// Total has the sums; MTU is the smallest, and Connections are of the node with the least headroom.
	Total Status `json:"total"`
	// Fullest is the node whose connection table is the fullest.
	Fullest  string    `json:"fullest,omitempty"`
	Findings []Finding `json:"findings"`
	Statuses []Status  `json:"statuses"`
}

// Shared is what the cluster's datastore shows, and no agent alone: the pools' sizes, and findings.
type Shared struct {
	Pools    []Pool
	Findings []Finding
}

// Merge sums up the nodes. silent are the nodes whose agent did not answer, with the errors.
func Merge(all []Status, silent map[string]string, shared Shared) Cluster {
	c := Cluster{
		Nodes: len(all) + len(silent), Answered: len(all), Versions: map[string]int{}, Statuses: all,
		Findings: append([]Finding{}, shared.Findings...), Total: Status{Pools: slices.Clone(shared.Pools)},
	}
	for node, err := range silent {
		c.Findings = append(c.Findings, Finding{
			Level: Bad, Node: node, Check: "agent", Message: "the agent does not answer: " + err,
			Hint: "its rules and routes stay in force, but nothing is attached or repaired: see the agent's log on the node",
		})
	}
	for _, s := range all {
		c.add(s)
	}
	if len(c.Versions) > 1 {
		c.Findings = append(c.Findings, Finding{
			Level: Warn, Check: "agent", Message: "agents have several versions: " + versionsText(c.Versions),
			Hint: "finish the upgrade",
		})
	}
	slices.SortFunc(c.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Level.rank(), b.Level.rank()), compareNodes(a.Node, b.Node),
			cmp.Compare(a.Check, b.Check), cmp.Compare(a.Message, b.Message))
	})
	slices.SortFunc(c.Total.Pools, func(a, b Pool) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(c.Statuses, func(a, b Status) int { return compareNodes(a.Node, b.Node) })
	c.Good = c.Answered > 0 && !slices.ContainsFunc(c.Findings, func(f Finding) bool { return f.Level == Bad })
	return c
}

// add adds a node.
func (c *Cluster) add(s Status) {
	t := &c.Total
	c.Versions[s.Version]++
	t.Attachments, t.Unfinished, t.Broken = t.Attachments+s.Attachments, t.Unfinished+s.Unfinished, t.Broken+s.Broken
	t.Pending, t.Releasing = t.Pending+s.Pending, t.Releasing+s.Releasing
	t.VMs, t.Migrations = t.VMs+s.VMs, t.Migrations+s.Migrations
	t.Peers, t.Reached = t.Peers+s.Peers, t.Reached+s.Reached
	if s.MTU > 0 && (t.MTU == 0 || s.MTU < t.MTU) {
		t.MTU = s.MTU
	}
	if s.Worst != nil && s.Worst.Worse(t.Worst) {
		t.Worst = s.Worst
	}
	// Each agent knows all policies.
	t.Policies, t.Incomplete, t.Denied = max(t.Policies, s.Policies), max(t.Incomplete, s.Incomplete), t.Denied+s.Denied
	t.DeniedPerMinute += s.DeniedPerMinute
	t.Blocks, t.Free, t.Allocated = t.Blocks+s.Blocks, t.Free+s.Free, t.Allocated+s.Allocated
	for _, p := range s.Pools {
		i := slices.IndexFunc(t.Pools, func(have Pool) bool { return have.Name == p.Name })
		if i < 0 {
			i, t.Pools = len(t.Pools), append(t.Pools, Pool{Name: p.Name})
		}
		have := &t.Pools[i]
		have.Blocks, have.Free, have.Allocated = have.Blocks+p.Blocks, have.Free+p.Free, have.Allocated+p.Allocated
	}
	if f := s.FastPath; f != nil {
		if t.FastPath == nil {
			t.FastPath = &FastPath{Mode: f.Mode}
		}
		sum := t.FastPath
		sum.Nodes, sum.Links, sum.Packets = sum.Nodes+f.Nodes, sum.Links+f.Links, sum.Packets+f.Packets
		sum.Liberal += f.Liberal
		sum.Mode, sum.Way, sum.Lacks = joinWord(sum.Mode, f.Mode), joinWord(sum.Way, f.Way), cmp.Or(sum.Lacks, f.Lacks)
	}
	t.Repairs += s.Repairs
	if s.MaxConnections > 0 && (t.MaxConnections == 0 || s.Connections*t.MaxConnections > t.Connections*s.MaxConnections) {
		t.Connections, t.MaxConnections, c.Fullest = s.Connections, s.MaxConnections, s.Node
	}
	for _, f := range s.Findings {
		f.Node = s.Node
		c.Findings = append(c.Findings, f)
	}
}

// joinWord adds a word to a list, once.
func joinWord(list, word string) string {
	switch {
	case list == "" || word == "":
		return list + word
	case slices.Contains(strings.Split(list, ", "), word):
		return list
	}
	return list + ", " + word
}

// compareNodes compares names, with numbers at their ends by value: node2 is before node10.
func compareNodes(a, b string) int {
	const digits = "0123456789"
	if strings.TrimRight(a, digits) == strings.TrimRight(b, digits) {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	}
	return cmp.Compare(a, b)
}

func versionsText(versions map[string]int) string {
	var out []string
	for v, n := range versions {
		out = append(out, fmt.Sprintf("%s (%d)", v, n))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
