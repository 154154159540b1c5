// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"

	"github.com/weft-net/weft/internal/plan/explain"
)

// VMsInput is what agents say of VMs, by node.
type VMsInput struct {
	Facts map[string]explain.Node
	// Bindings are the interfaces that agents and weft vm have joined, States the addresses that outlive a pod.
	Bindings map[string][]VMBinding
	States   map[string][]VMState
	// Migrations are objects of the datastore.
	Migrations []Migration
	// Silent has why agents did not answer.
	Silent map[string]string
}

// VMBinding is how an interface of a VM is joined to its pod's network.
type VMBinding struct{ VM, Interface, Network, Binding string }

// VMState is where a VM's attachment is: here, awaited or left.
type VMState struct{ VM, Pod, State string }

// Migration is a VM that goes to another node.
type Migration struct {
	VM     string `json:"vm"`
	Source string `json:"source"`
	Target string `json:"target"`
	// Departed: the VM does not run on the source any more.
	Departed bool `json:"departed"`
}

// VMs are the virtual machines of a cluster.
type VMs struct {
	VMs        []VMRow     `json:"vms"`
	Migrations []Migration `json:"migrations"`
	// Unknown are the nodes whose agents did not answer.
	Unknown []Row `json:"unknown"`
}

// VMRow is a pod with a VM.
type VMRow struct {
	// VM is namespace/name, empty if the agent knows only the pod.
	VM   string `json:"vm"`
	Pod  string `json:"pod"`
	Node string `json:"node"`
	// State is here, awaited (the target of a migration), left (its source), or empty: its addresses end with the pod.
	State      string        `json:"state"`
	Interfaces []VMInterface `json:"interfaces"`
}

// VMInterface is one.
type VMInterface struct {
	Name    string   `json:"name"`
	Network string   `json:"network"`
	Binding string   `json:"binding"`
	Addrs   []string `json:"addrs"`
}

// NewVMs returns the view of VMs.
func NewVMs(in VMsInput) VMs {
	v := VMs{VMs: []VMRow{}, Migrations: []Migration{}, Unknown: []Row{}}
	v.Migrations = append(v.Migrations, in.Migrations...)
	for node, why := range in.Silent {
		v.Unknown = append(v.Unknown, Row{node, why})
	}
	slices.SortFunc(v.Unknown, func(a, b Row) int { return compareNames(a.Name, b.Name) })
	for node, facts := range in.Facts {
		for _, p := range facts.Pods {
			if isVM(p) {
				v.VMs = append(v.VMs, vmRow(in, node, p))
			}
		}
	}
	slices.SortFunc(v.VMs, func(a, b VMRow) int {
		return cmp.Or(cmp.Compare(cmp.Or(a.VM, a.Pod), cmp.Or(b.VM, b.Pod)), compareNames(a.Node, b.Node))
	})
	return v
}

func vmRow(in VMsInput, node string, p explain.Pod) VMRow {
	row := VMRow{Pod: p.Name, Node: node, Interfaces: []VMInterface{}}
	for _, s := range in.States[node] {
		if s.Pod == p.Name {
			row.VM, row.State = s.VM, s.State
		}
	}
	for _, i := range p.Interfaces {
		one := VMInterface{Name: i.Name, Network: cmp.Or(i.Network, ClusterNetwork), Addrs: []string{}}
		switch {
		case !i.VM:
			one.Binding = "of the pod only"
		case len(i.Leases) > 0:
			one.Binding = "behind NAT"
		case i.Joined:
			one.Binding = "joined without a bridge"
		case i.Tap == "":
			one.Binding = "by another program"
		default:
			one.Binding = "by a bridge"
		}
		for _, b := range in.Bindings[node] {
			if b.VM == cmp.Or(row.VM, p.Name) && (b.Interface == i.Name || b.Network == i.Network) {
				one.Binding = b.Binding
			}
		}
		for _, a := range i.Addrs {
			one.Addrs = append(one.Addrs, a.Addr().String())
		}
		row.Interfaces = append(row.Interfaces, one)
	}
	return row
}
