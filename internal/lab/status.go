// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/sandbox"
	"github.com/weft-net/weft/internal/vm/launch"
)

// Status is a lab as it is now. The keys of its JSON form are stable.
type Status struct {
	Name  string       `json:"name"`
	Dir   string       `json:"dir"`
	Phase string       `json:"phase"` // starting or up
	Nodes []NodeStatus `json:"nodes"`
	Pods  []PodStatus  `json:"pods"`
	// Machines are the virtual machines that run, each in one of the pods.
	Machines []launch.Status `json:"machines"`
	// Problems say what could not be found out, which processes are dead, and which pods have no sandbox.
	Problems []string `json:"problems"`
}

const (
	stateMissing = "Missing"
	// procRunning and procDead are the states of a node's processes.
	procRunning = "running"
	procDead    = "dead"
)

// NodeStatus is a node of a lab.
type NodeStatus struct {
	Name     string         `json:"name"`
	IPs      []netip.Addr   `json:"ips"`   // on the first wire, by which the cluster knows the node
	Wires    [][]netip.Addr `json:"wires"` // on each wire
	PodCIDRs []netip.Prefix `json:"podCIDRs"`
	Agent    string         `json:"agent"`   // running or dead
	Sandbox  string         `json:"sandbox"` // running or dead
	Netns    string         `json:"netns"`
	Pods     int            `json:"pods"`
}

// PodStatus is a pod of a lab.
type PodStatus struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Node        string            `json:"node"`
	IPs         []netip.Addr      `json:"ips"`
	Annotations map[string]string `json:"annotations"`
	UID         string            `json:"uid"`
	HostNetwork bool              `json:"hostNetwork"`
	// Networks are those beside the cluster's.
	Networks []PodNetwork `json:"networks"`
	// State is as the sandbox runtime says, and Missing when it knows no such pod; Reason says why it is not Running.
	State  string `json:"state"`
	Reason string `json:"reason"`
	Ready  bool   `json:"ready"`
	ID     string `json:"id"`
	Netns  string `json:"netns"`
}

// Status looks at the lab as it is now.
func (d Dir) Status(ctx context.Context) (Status, error) {
	m, err := d.Open()
	if err != nil {
		return Status{}, err
	}
	st := Status{
		Name: m.Layout.Spec.Name, Dir: string(d), Phase: m.Phase, Nodes: []NodeStatus{}, Pods: []PodStatus{},
		Machines: []launch.Status{}, Problems: []string{},
	}
	problem := func(err error) {
		if err != nil {
			st.Problems = append(st.Problems, err.Error())
		}
	}
	live, err := d.sandboxes(ctx, m.Layout)
	problem(err)
	pods, err := d.pods()
	problem(err)
	count := map[string]int{}
	for _, p := range pods {
		count[p.Node]++
		st.Pods = append(st.Pods, d.pod(p, live[podKey{p.Namespace, p.Name}]))
	}
	taken, err := d.blocks()
	problem(err)
	for _, n := range m.Layout.Nodes {
		ns := d.node(n, count[n.Name])
		ns.PodCIDRs = append(ns.PodCIDRs, taken[n.Name]...)
		st.Nodes = append(st.Nodes, ns)
		machines, err := launch.ReadAll(d.Machines(n.Name))
		problem(err)
		st.Machines = append(st.Machines, machines...)
	}
	st.Problems = append(st.Problems, st.wrong()...)
	return st, nil
}

// wrong lists the processes that are dead and the pods that do not run.
func (st Status) wrong() []string {
	var out []string
	for _, n := range st.Nodes {
		for role, state := range map[string]string{roleAgent: n.Agent, roleSandbox: n.Sandbox} {
			if state != procRunning {
				out = append(out,
					fmt.Sprintf("node %s: its %s is %s: see %s.log in %s", n.Name, role, state, role, Dir(st.Dir).Node(n.Name)))
			}
		}
	}
	slices.Sort(out)
	for _, p := range st.Pods {
		if problem := p.problem(); problem != "" && !p.over() {
			out = append(out, problem)
		}
	}
	return out
}

// blocks are what each node has taken of the cluster's pools.
func (d Dir) blocks() (map[string][]netip.Prefix, error) {
	s, err := dir.Open(d.Store())
	if err != nil {
		return nil, err
	}
	objects, err := s.List("")
	objects = slices.DeleteFunc(objects, func(o store.Object) bool {
		return !o.Key.Of(store.AddressPools()) && !o.Key.Of(store.AddressBlocks())
	})
	c, problems := store.Cluster(objects)
	out := map[string][]netip.Prefix{}
	for _, b := range c.Blocks {
		if slices.ContainsFunc(c.Pools, func(p model.AddressPool) bool { return p.Name == b.Pool && p.OfCluster() }) {
			out[b.Node] = append(out[b.Node], b.CIDR)
		}
	}
	return out, errors.Join(append(problems, err)...)
}

// pods are those of the store.
func (d Dir) pods() ([]model.Pod, error) {
	s, err := dir.Open(d.Store())
	if err != nil {
		return nil, err
	}
	objects, err := s.List("Pod")
	if err != nil {
		return nil, err
	}
	c, problems := store.Cluster(objects)
	return c.Pods, errors.Join(problems...)
}

// pod joins what the store and what the node's runtime say; a runtime that does not know it leaves it missing.
func (d Dir) pod(p model.Pod, box sandbox.Pod) PodStatus {
	ps := PodStatus{
		Name: p.Name, Namespace: p.Namespace, Node: p.Node, IPs: p.IPs, Annotations: map[string]string{}, UID: p.UID,
		HostNetwork: p.HostNetwork, State: stateMissing,
	}
	if box.Name != "" {
		ps.State, ps.Ready, ps.ID, ps.Netns, ps.Reason = box.State, box.Ready, box.ID, box.Netns, box.Message
		if len(box.IPs) > 0 {
			ps.IPs = podIPs(box)
		}
		maps.Copy(ps.Annotations, box.Annotations)
	}
	maps.Copy(ps.Annotations, p.Annotations)
	ps.Networks = networksOf(ps.Annotations)
	if ps.HostNetwork {
		ps.Netns = d.NS(p.Node)
	}
	if ps.IPs == nil {
		ps.IPs = []netip.Addr{}
	}
	return ps
}

func (d Dir) node(n Node, pods int) NodeStatus {
	ns := NodeStatus{Name: n.Name, IPs: n.addrsOn(0), PodCIDRs: n.PodCIDRs, Netns: d.NS(n.Name), Pods: pods}
	for w := range n.Addrs {
		ns.Wires = append(ns.Wires, n.addrsOn(w))
	}
	state := func(role string) string {
		if d.runs(n.Name, role) {
			return procRunning
		}
		return procDead
	}
	ns.Agent, ns.Sandbox = state(roleAgent), state(roleSandbox)
	return ns
}

// Place is where a command can run: a node, or a pod on it.
type Place struct {
	Name  string
	Node  string
	Netns string
	// Namespace and Pod are empty for a node.
	Namespace, Pod string
}

// Find finds a node or pod by the name a user gives: NODE, POD or NAMESPACE/POD.
func (st Status) Find(name string) (Place, error) {
	var found []Place
	var names []string
	for _, n := range st.Nodes {
		names = append(names, n.Name)
		if n.Name == name {
			found = append(found, Place{Name: name, Node: name, Netns: n.Netns})
		}
	}
	for _, p := range st.Pods {
		full := p.Namespace + "/" + p.Name
		names = append(names, full)
		if name == full || name == p.Name {
			found = append(found, Place{Name: full, Node: p.Node, Netns: p.Netns, Namespace: p.Namespace, Pod: p.Name})
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return Place{}, model.Faultf(model.CodeInvalidConf, "there are "+strings.Join(names, ", "),
			"no node or pod is called %q", name)
	}
	return Place{}, model.Faultf(model.CodeInvalidConf, "write NAMESPACE/NAME", "%q is the name of several: %s and %s",
		name, found[0].Name, found[1].Name)
}
