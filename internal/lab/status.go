// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/store"
	"github.com/weft-net/weft/internal/store/dir"
)

// Status is a lab as it is now. The keys of its JSON form are stable.
type Status struct {
	Name  string       `json:"name"`
	Dir   string       `json:"dir"`
	Phase string       `json:"phase"` // starting or up
	Nodes []NodeStatus `json:"nodes"`
	Pods  []PodStatus  `json:"pods"`
	// Problems say what could not be found out.
	Problems []string `json:"problems,omitempty"`
}

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
	State       string            `json:"state"` // as the sandbox runtime says; missing when it knows no such pod
	Ready       bool              `json:"ready"`
	ID          string            `json:"id"`
	Netns       string            `json:"netns"`
}

// View looks at a lab from outside.
type View struct {
	Dir  Dir
	Self string
	Env  []string
}

// Status looks at the lab as it is now.
func (v View) Status(ctx context.Context) (Status, error) {
	m, err := v.Dir.Open()
	if err != nil {
		return Status{}, err
	}
	st := Status{Name: m.Layout.Spec.Name, Dir: string(v.Dir), Phase: m.Phase, Nodes: []NodeStatus{}, Pods: []PodStatus{}}
	problem := func(err error) { st.Problems = append(st.Problems, err.Error()) }
	live, err := v.sandboxes(ctx, m.Layout)
	if err != nil {
		problem(err)
	}
	count := map[string]int{}
	s, err := dir.Open(v.Dir.Store())
	if err != nil {
		problem(err)
	} else {
		objects, err := s.List("")
		if err != nil {
			problem(err)
		}
		c, problems := store.Cluster(objects)
		for _, err := range problems {
			problem(err)
		}
		for _, p := range c.Pods {
			count[p.Node]++
			ps := PodStatus{
				Name: p.Name, Namespace: p.Namespace, Node: p.Node, IPs: p.IPs, Annotations: p.Annotations, UID: p.UID,
				HostNetwork: p.HostNetwork, State: "missing",
			}
			if box, ok := live[podKey{p.Namespace, p.Name}]; ok {
				ps.State, ps.Ready, ps.ID, ps.Netns = box.State, box.Ready, box.ID, box.Netns
				if len(box.IPs) > 0 {
					ps.IPs = box.IPs
				}
			}
			if p.HostNetwork {
				ps.Netns = v.Dir.NS(p.Node)
			}
			st.Pods = append(st.Pods, ps.filled())
		}
	}
	for _, n := range m.Layout.Nodes {
		st.Nodes = append(st.Nodes, v.node(n, count[n.Name]))
	}
	return st, nil
}

// filled has no null in its JSON form.
func (p PodStatus) filled() PodStatus {
	if p.IPs == nil {
		p.IPs = []netip.Addr{}
	}
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	return p
}

func (v View) node(n Node, pods int) NodeStatus {
	ns := NodeStatus{Name: n.Name, IPs: n.addrsOn(0), PodCIDRs: n.PodCIDRs, Netns: v.Dir.NS(n.Name), Pods: pods}
	for w := range n.Addrs {
		ns.Wires = append(ns.Wires, n.addrsOn(w))
	}
	state := func(role string) string {
		if v.Dir.runs(n.Name, role) {
			return "running"
		}
		return "dead"
	}
	ns.Agent, ns.Sandbox = state(roleAgent), state(roleSandbox)
	return ns
}

// Place is where a command can run.
type Place struct {
	Name    string
	Node    string
	Netns   string
	Sandbox string // the sandbox's id; empty for a node
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
		if name != full && name != p.Name {
			continue
		}
		if p.ID == "" && name == full {
			return Place{}, model.Faultf(model.CodeUnknownContainer, "look at `weft lab status`", "pod %s does not run", full)
		}
		found = append(found, Place{Name: full, Node: p.Node, Netns: p.Netns, Sandbox: p.ID})
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return Place{}, model.Faultf(model.CodeInvalidConf, "there are "+strings.Join(names, ", "), "no node or pod is called %q", name)
	}
	return Place{}, model.Faultf(model.CodeInvalidConf, "write NAMESPACE/NAME", "%q is the name of several: %s and %s", name, found[0].Name, found[1].Name)
}
