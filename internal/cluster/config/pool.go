// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// Pool is a cluster-wide pool of addresses for pods. An AddressPool is created from it if there is none of that name;
// from then on the object counts ([routed pods](../concepts/routed-pods.md)).
type Pool struct {
	// Name is the name of the AddressPool; empty is derived from the prefix, as `pool-10-244-0-0-16`.
	Name string `json:"name"`
	// CIDR is the prefix.
	CIDR netip.Prefix `json:"cidr"`
	// BlockSize is the prefix length of its blocks; 0 is chosen by the size of the pool.
	BlockSize int `json:"blockSize"`
	// Encapsulation is the backend to the pods of other nodes: `none`, `vxlan` or `ipip`; empty is
	// `network.encapsulation`.
	Encapsulation string `json:"encapsulation"`
	// Encapsulate is `Always`, or `CrossSubnet`: only between nodes on different networks.
	Encapsulate string `json:"encapsulate"`
	// NATOutgoing masquerades (SNAT) packets of these pods to destinations outside of all pools.
	NATOutgoing bool `json:"natOutgoing"`
	// NodeSelector selects the nodes whose pods get addresses of the pool, as `zone == "west"`; empty is all.
	NodeSelector string `json:"nodeSelector"`
	// NamespaceSelector selects the namespaces of these pods; empty is all.
	NamespaceSelector string `json:"namespaceSelector"`
	// AssignmentMode is `Automatic`, or `Manual`: only for pods that request this pool.
	AssignmentMode string `json:"assignmentMode"`
}

// Model returns the pool that is created.
func (p Pool) Model() model.AddressPool {
	out := model.AddressPool{
		Name: p.Name, NATOutgoing: p.NATOutgoing, NodeSelector: p.NodeSelector, NamespaceSelector: p.NamespaceSelector,
		AssignmentMode: model.AssignAutomatic,
		Encapsulation: model.Encapsulation{
			Kind: model.EncapsulationKind(p.Encapsulation), Mode: model.EncapsulationMode(p.Encapsulate),
		},
		Regions: []model.AddressRegion{{CIDR: p.CIDR, BlockSize: p.BlockSize}},
	}
	if p.AssignmentMode != "" {
		out.AssignmentMode = model.AssignmentMode(p.AssignmentMode)
	}
	if out.Name == "" {
		out.Name = "pool-" + strings.NewReplacer(".", "-", ":", "-").Replace(p.CIDR.Addr().StringExpanded()) + "-" +
			strconv.Itoa(p.CIDR.Bits())
	}
	if bits := p.CIDR.Addr().BitLen() - p.CIDR.Bits(); p.BlockSize == 0 {
		out.Regions[0].BlockSize = model.BlockSize(p.CIDR, 1<<min(bits, 30))
	}
	return out
}

// PoolModels returns the pools that are created.
func (n Network) PoolModels() (out []model.AddressPool) {
	for _, p := range n.Pools {
		out = append(out, p.Model())
	}
	return out
}

// FromPools reports whether pods get addresses from blocks of pools.
func (n Network) FromPools() bool {
	return n.Addresses == AddressesPools || n.Addresses == "" && len(n.Pools) > 0
}

// checkDesign rejects contradicting settings of the pods' links and addresses.
func (n Network) checkDesign() error {
	switch {
	case n.Design != DesignRouted && n.Design != DesignBridge:
		return invalid("routed or bridge", "network.design %q is not known", n.Design)
	case n.Addresses != "" && n.Addresses != AddressesPools && n.Addresses != AddressesPodCIDRs:
		return invalid("podCIDRs or pools", "network.addresses %q is not known", n.Addresses)
	case n.Addresses == AddressesPodCIDRs && len(n.Pools) > 0:
		return invalid("leave one out", "network.addresses %q and network.pools contradict each other", n.Addresses)
	}
	if err := n.checkDADTimeout(); err != nil || !n.FromPools() {
		return err
	}
	switch {
	case n.Design == DesignBridge:
		return invalid("a bridge needs one prefix per node: use design routed, or network.addresses podCIDRs",
			"network.design %q does not support addresses from pools", n.Design)
	case len(n.PodCIDRs) > 0:
		return invalid("leave one out", "network.podCIDRs and addresses from pools contradict each other")
	case n.Mode == ModeFlannel || n.Mode.OtherVendor():
		return invalid("leave network.pools and network.addresses out", "network.mode %q has no pools", n.Mode)
	}
	for i, p := range n.Pools {
		if err := p.check("network.pools["+strconv.Itoa(i)+"]", n.Pools[:i]); err != nil {
			return err
		}
	}
	return nil
}

func (n Network) checkDADTimeout() error {
	const most = 10 * time.Second
	timeout := time.Duration(n.DADTimeout)
	switch {
	case timeout == 0:
		return nil
	case timeout < time.Millisecond || timeout > most:
		return invalid("for example 200ms; 0 disables it", "network.dadTimeout %s is not between 1ms and %s", timeout, most)
	case n.Mode != ModeCluster || n.Design != DesignBridge:
		return invalid("leave it out, or set it in the configuration of the network whose pods share a link with other hosts",
			"network.dadTimeout %s: mode %s, design %s: a routed pod has no other hosts on its link, and other networks have "+
				"the key in their own configuration", timeout, n.Mode, n.Design)
	}
	return nil
}

func (p Pool) check(at string, before []Pool) error {
	if !p.CIDR.IsValid() {
		return invalid("as 10.244.0.0/16", "%s.cidr is missing", at)
	}
	if p.CIDR != p.CIDR.Masked() {
		return invalid("did you mean "+p.CIDR.Masked().String()+"?", "%s.cidr %s has bits beyond its length", at, p.CIDR)
	}
	for _, q := range before {
		if p.CIDR.Overlaps(q.CIDR) {
			return invalid("give each range once", "%s.cidr %s overlaps %s", at, p.CIDR, q.CIDR)
		}
		if p.Model().Name == q.Model().Name {
			return invalid("give each pool a name of its own", "%s.name %q is another pool's", at, p.Model().Name)
		}
	}
	if err := model.CheckName(at+".name", p.Model().Name); err != nil {
		return err
	}
	most := p.CIDR.Addr().BitLen()
	if least := max(p.CIDR.Bits(), most-model.MaxBlockBits); p.BlockSize != 0 &&
		(p.BlockSize < least || p.BlockSize > most) {
		return invalid("leave it out, and it fits the pool", "%s.blockSize %d is not between %d and %d", at,
			p.BlockSize, least, most)
	}
	for _, w := range []struct {
		key, value string
		known      []string
	}{
		{"encapsulation", p.Encapsulation, []string{"none", "vxlan", "ipip"}},
		{"encapsulate", p.Encapsulate, []string{"Always", "CrossSubnet"}},
		{"assignmentMode", p.AssignmentMode, []string{"Automatic", "Manual"}},
	} {
		if w.value != "" && !slices.Contains(w.known, w.value) {
			return invalid(strings.Join(w.known, " or "), "%s.%s %q is not known", at, w.key, w.value)
		}
	}
	if p.Encapsulate != "" && p.Encapsulation != "vxlan" && p.Encapsulation != "ipip" {
		return invalid("leave it out, or name vxlan or ipip", "%s.encapsulate has no effect with encapsulation %q", at,
			p.Encapsulation)
	}
	if p.Encapsulation == "ipip" && p.CIDR.Addr().Is6() {
		return invalid("use vxlan", "%s.encapsulation %q carries IPv4 only, and the pool is %s", at, p.Encapsulation, p.CIDR)
	}
	for _, s := range [][2]string{{"nodeSelector", p.NodeSelector}, {"namespaceSelector", p.NamespaceSelector}} {
		if _, err := model.ParseExpression(s[1]); err != nil {
			return invalid("", "%s.%s %q: %w", at, s[0], s[1], err)
		}
	}
	return nil
}
