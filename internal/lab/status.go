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
	"github.com/weft-net/weft/internal/lab/connectivity"
	"github.com/weft-net/weft/internal/lab/cut"
	"github.com/weft-net/weft/internal/lab/fabric"
	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/lab/replicas"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/sandbox"
	"github.com/weft-net/weft/internal/vm/launch"
)

// Status is the status of a lab. The keys of its JSON form are stable.
type Status struct {
	Name  string       `json:"name"`
	Dir   string       `json:"dir"`
	Phase string       `json:"phase"` // starting or up
	Nodes []NodeStatus `json:"nodes"`
	Pods  []PodStatus  `json:"pods"`
	// Routers are those of a lab with a fabric.
	Routers []RouterStatus `json:"routers,omitempty"`
	// Deployments are the Deployments and ReplicaSets.
	Deployments []replicas.Status `json:"deployments"`
	// VMs are the running VMs, each in one of the pods.
	VMs []launch.Status `json:"machines"` // glossary: a stable key
	// Skipped are the Services, which do not work in a lab, each with the reason.
	Skipped []connectivity.Skip `json:"skipped"`
	// Cuts are the frames that the wires lose; an empty node means every node.
	Cuts []cut.Cut `json:"cuts"`
	// Problems are errors of the inspection, dead processes, and pods without a sandbox.
	Problems []string `json:"problems"`
}

const (
	stateMissing = "Missing"
	// Running and procDead are the states of a node's processes.
	Running  = "running"
	procDead = "dead"
)

// NodeStatus is a node of a lab.
type NodeStatus struct {
	Name     string         `json:"name"`
	IPs      []netip.Addr   `json:"ips"`   // on the first wire, as in the Node object
	Wires    [][]netip.Addr `json:"wires"` // on each wire
	PodCIDRs []netip.Prefix `json:"podCIDRs"`
	Agent    string         `json:"agent"`   // running or dead
	Sandbox  string         `json:"sandbox"` // running or dead
	// Speaker is weft-bgp in a lab with a fabric: running or dead.
	Speaker string `json:"speaker,omitempty"`
	Netns   string `json:"netns"`
	Pods    int    `json:"pods"`
	// Unschedulable: no pods are bound to the node, as after `weft lab drain`.
	Unschedulable bool `json:"unschedulable"`
}

// RouterStatus is a router of a lab's fabric.
type RouterStatus struct {
	Name    string `json:"name"`
	ASN     uint32 `json:"asNumber"`
	Agent   string `json:"agent"`   // running or dead
	Speaker string `json:"speaker"` // weft-bgp: running or dead
	Netns   string `json:"netns"`
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
	// Networks are the additional networks.
	Networks []PodNetwork `json:"networks"`
	// State is the state in the sandbox runtime, or Missing; Reason explains why it is not Running.
	State  string `json:"state"`
	Reason string `json:"reason"`
	Ready  bool   `json:"ready"`
	ID     string `json:"id"`
	Netns  string `json:"netns"`
}

// Status inspects the lab.
func (d Dir) Status(ctx context.Context) (Status, error) { return NewStatusReader(d).Status(ctx) }

// StatusReader inspects a lab repeatedly, and reads only what has changed of its store.
type StatusReader struct {
	dir   Dir
	store *dir.Store
}

// NewStatusReader returns a reader of a lab, which need not exist yet.
func NewStatusReader(d Dir) *StatusReader { return &StatusReader{dir: d} }

// Objects returns the objects of the lab's store.
func (r *StatusReader) Objects() ([]store.Object, error) {
	if r.store == nil {
		s, err := dir.Open(r.dir.Store())
		if err != nil {
			return nil, err
		}
		r.store = s
	}
	return r.store.List("")
}

// Status inspects the lab.
func (r *StatusReader) Status(ctx context.Context) (Status, error) {
	d := r.dir
	m, err := d.Open()
	if err != nil {
		return Status{}, err
	}
	st := Status{
		Name: m.Layout.Spec.Name, Dir: string(d), Phase: m.Phase, Nodes: []NodeStatus{}, Pods: []PodStatus{},
		VMs: []launch.Status{}, Problems: []string{}, Cuts: append([]cut.Cut{}, m.Cuts...),
	}
	problem := func(err error) {
		if err != nil {
			st.Problems = append(st.Problems, err.Error())
		}
	}
	running, err := d.runningPods(ctx, m.Layout)
	problem(err)
	objects, err := r.Objects()
	problem(err)
	st.Skipped = skippedServices(objects)
	c, problems := store.Cluster(slices.DeleteFunc(slices.Clone(objects), func(o store.Object) bool {
		return !o.Is("Pod") && !o.Key.Of(store.AddressPools()) && !o.Key.Of(store.AddressBlocks())
	}))
	problem(errors.Join(problems...))
	count := map[string]int{}
	for _, p := range c.Pods {
		count[p.Node]++
		st.Pods = append(st.Pods, d.podStatus(p, running[podKey{p.Namespace, p.Name}]))
	}
	st.Deployments, err = replicas.StatusOf(objects, c.Pods)
	problem(err)
	blocks, unschedulable := clusterBlocks(c), Unschedulable(objects)
	for _, n := range m.Layout.Nodes {
		ns := d.nodeStatus(n, count[n.Name])
		ns.PodCIDRs = append(ns.PodCIDRs, blocks[n.Name]...)
		ns.Unschedulable = unschedulable[n.Name]
		if m.Layout.Spec.Fabric != "" {
			ns.Speaker = processState(d, n.Name, roleSpeaker)
		}
		st.Nodes = append(st.Nodes, ns)
		vms, err := launch.ReadAll(d.VMs(n.Name))
		problem(err)
		st.VMs = append(st.VMs, vms...)
	}
	for _, router := range fabric.Routers(m.Layout) {
		st.Routers = append(st.Routers, d.routerStatus(router))
	}
	if p := d.cutProblem(ctx, m); p != "" {
		st.Problems = append(st.Problems, p)
	}
	st.Problems = append(st.Problems, st.problems()...)
	return st, nil
}

// problems lists dead processes and pods that are not running.
func (st Status) problems() []string {
	var out []string
	for _, n := range st.Nodes {
		for role, state := range map[string]string{roleAgent: n.Agent, roleSandbox: n.Sandbox, roleSpeaker: n.Speaker} {
			if state != Running && state != "" {
				out = append(out,
					fmt.Sprintf("node %s: %s is %s: see %s.log in %s", n.Name, role, state, role, Dir(st.Dir).Node(n.Name)))
			}
		}
	}
	for _, r := range st.Routers {
		for role, state := range map[string]string{roleAgent: r.Agent, roleSpeaker: r.Speaker} {
			if state != Running {
				out = append(out,
					fmt.Sprintf("router %s: %s is %s: see %s.log in %s", r.Name, role, state, role, Dir(st.Dir).Node(r.Name)))
			}
		}
	}
	slices.Sort(out)
	for _, p := range st.Pods {
		if problem := p.problem(); problem != "" && !p.finished() {
			out = append(out, problem)
		}
	}
	return out
}

// clusterBlocks returns the blocks of each node in the cluster's pools.
func clusterBlocks(c model.Cluster) map[string][]netip.Prefix {
	out := map[string][]netip.Prefix{}
	for _, b := range c.Blocks {
		if slices.ContainsFunc(c.Pools, func(p model.AddressPool) bool { return p.Name == b.Pool && p.IsClusterPool() }) {
			out[b.Node] = append(out[b.Node], b.CIDR)
		}
	}
	return out
}

// podStatus combines the pod's object in the store with its state in the node's runtime, which may be empty.
func (d Dir) podStatus(p model.Pod, running sandbox.Pod) PodStatus {
	ps := PodStatus{
		Name: p.Name, Namespace: p.Namespace, Node: p.Node, IPs: p.IPs, Annotations: map[string]string{}, UID: p.UID,
		HostNetwork: p.HostNetwork, State: stateMissing,
	}
	switch {
	case running.Name != "" && running.UID != p.UID:
		ps.State, ps.Reason = "Pending", "an earlier pod of its name has not ended yet"
	case p.Node == "":
		ps.State, ps.Reason = "Pending", "no node yet: the nodes may be unschedulable"
	case running.Name != "":
		ps.State, ps.Ready, ps.ID = running.State, running.Ready, running.ID
		ps.Netns, ps.Reason = running.Netns, running.Message
		if len(running.IPs) > 0 {
			ps.IPs = podIPs(running)
		}
		maps.Copy(ps.Annotations, running.Annotations)
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

func (d Dir) nodeStatus(n layout.Node, pods int) NodeStatus {
	ns := NodeStatus{Name: n.Name, IPs: n.AddrsOn(0), PodCIDRs: n.PodCIDRs, Netns: d.NS(n.Name), Pods: pods}
	for w := range n.Addrs {
		ns.Wires = append(ns.Wires, n.AddrsOn(w))
	}
	ns.Agent, ns.Sandbox = processState(d, n.Name, roleAgent), processState(d, n.Name, roleSandbox)
	return ns
}

// Location is a node or a pod, where a command can run.
type Location struct {
	Name  string
	Node  string
	Netns string
	// Namespace and Pod are empty for a node.
	Namespace, Pod string
}

// Find finds a node or pod by a user's name: NODE, POD or NAMESPACE/POD.
func (st Status) Find(name string) (Location, error) {
	var found []Location
	var names []string
	for _, n := range st.Nodes {
		names = append(names, n.Name)
		if n.Name == name {
			found = append(found, Location{Name: name, Node: name, Netns: n.Netns})
		}
	}
	for _, r := range st.Routers {
		names = append(names, r.Name)
		if r.Name == name {
			found = append(found, Location{Name: name, Node: name, Netns: r.Netns})
		}
	}
	for _, p := range st.Pods {
		full := p.Namespace + "/" + p.Name
		names = append(names, full)
		if name == full || name == p.Name {
			found = append(found, Location{Name: full, Node: p.Node, Netns: p.Netns, Namespace: p.Namespace, Pod: p.Name})
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return Location{}, model.Errorf(model.CodeInvalidConf, "there are "+strings.Join(names, ", "),
			"node or pod %q not found", name)
	}
	return Location{}, model.Errorf(model.CodeInvalidConf, "write NAMESPACE/NAME", "%q is ambiguous: %s and %s", name,
		found[0].Name, found[1].Name)
}
