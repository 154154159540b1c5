// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
)

// Block is an IPAMBlock: its node, and its allocations.
type Block struct {
	CIDR netip.Prefix
	// Node is empty for a block without affinity: of load balancers, or one that a node released.
	Node        string
	Allocations []Allocation
}

// Allocation is an address that Calico has allocated.
type Allocation struct {
	Addr netip.Addr
	// Handle is the name under which Calico releases it.
	Handle string
	// Pod is "namespace/name" where a pod has it; Node is the pod's node, or that of the tunnel.
	Pod, Node string
	// Use is what else it is for: vxlanTunnelAddress, ipipTunnelAddress …
	Use string
	// VM is "namespace/name" of a KubeVirt VM that keeps the address over its pods.
	VM string
}

// Container returns the ID of the container that has the address, empty if the handle has none.
func (g Allocation) Container() string {
	if g.Pod == "" || g.VM != "" {
		return ""
	}
	// A network's name may have points, a container's id has none.
	_, id, ok := lastCut(g.Handle, ".")
	if !ok {
		return ""
	}
	return id
}

func lastCut(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// Allocations reads an IPAMBlock. One that Calico is deleting has none.
func Allocations(o store.Object) (Block, error) {
	var in struct {
		Spec struct {
			CIDR        string `json:"cidr"`
			Affinity    string `json:"affinity"`
			Allocations []*int `json:"allocations"`
			Attributes  []struct {
				HandleID  string            `json:"handle_id"`
				Secondary map[string]string `json:"secondary"`
			} `json:"attributes"`
			Deleted bool `json:"deleted"`
		} `json:"spec"`
	}
	if err := decode(o, &in); err != nil {
		return Block{}, err
	}
	s := in.Spec
	cidr, err := prefix(o, "spec.cidr", s.CIDR)
	if err != nil {
		return Block{}, err
	}
	b := Block{CIDR: cidr}
	if node, is := strings.CutPrefix(s.Affinity, "host:"); is {
		b.Node = node
	}
	if s.Deleted {
		return b, nil
	}
	addr := cidr.Addr()
	for ordinal, index := range s.Allocations {
		if !cidr.Contains(addr) {
			return b, invalid(o, "compare with `calicoctl ipam check`",
				"spec.allocations has %d entries, more than %s has addresses", len(s.Allocations), cidr)
		}
		if index != nil {
			if *index < 0 || *index >= len(s.Attributes) {
				return b, invalid(o, "compare with `calicoctl ipam check`", "spec.allocations[%d] is %d, and there are %d attributes",
					ordinal, *index, len(s.Attributes))
			}
			a := s.Attributes[*index]
			b.Allocations = append(b.Allocations, newAllocation(addr, a.HandleID, a.Secondary))
		}
		addr = addr.Next()
	}
	return b, nil
}

func newAllocation(addr netip.Addr, handle string, words map[string]string) Allocation {
	g := Allocation{Addr: addr, Handle: handle, Node: words["node"], Use: words["type"]}
	if words["pod"] != "" {
		g.Pod = words["namespace"] + "/" + words["pod"]
	}
	if name := words["vmi-name"]; name != "" {
		g.VM = words["namespace"] + "/" + name
	}
	return g
}

// String describes the owner of the address.
func (g Allocation) String() string {
	switch {
	case g.VM != "":
		return "machine " + g.VM // glossary: an owner in stored reservations
	case g.Pod != "":
		return "pod " + g.Pod
	case g.Use != "":
		return fmt.Sprintf("%s of node %s", g.Use, g.Node)
	case g.Handle != "":
		return "handle " + g.Handle
	}
	return "nobody"
}
