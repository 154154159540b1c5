// SPDX-License-Identifier: Apache-2.0

package config

import (
	"path/filepath"
	"slices"
)

// Mode is one of the modes of a network.
type Mode string

// The modes.
const (
	ModeNone    Mode = "none"
	ModeCluster Mode = "cluster"
	ModeFlannel Mode = "flannel"
	ModeMultus  Mode = "multus"
	ModePolicy  Mode = "policy"
)

// OtherVendor reports whether the pods' network is another vendor's, which has its own addresses and routes.
func (m Mode) OtherVendor() bool { return m == ModeMultus || m == ModePolicy }

// Design is how pods are connected to their node.
type Design string

// The designs.
const (
	DesignRouted Design = "routed"
	DesignBridge Design = "bridge"
)

// Addresses is the IPAM of pods.
type Addresses string

// The IPAMs of pods.
const (
	AddressesPodCIDRs Addresses = "podCIDRs"
	AddressesPools    Addresses = "pools"
)

// checkPermit validates PermitPaths and Permit.
func (n Network) checkPermit() error {
	for i, path := range n.PermitPaths {
		if !filepath.IsAbs(path) {
			return invalid("write it from the root", "network.permitPaths[%d] %q is no absolute path", i, path)
		}
	}
	for i, word := range n.Permit {
		if !slices.Contains([]string{"ipAddrsNoIpam", "floatingIPs", "allowedSourcePrefixes"}, word) {
			return invalid("ipAddrsNoIpam, floatingIPs or allowedSourcePrefixes", "network.permit[%d] %q is not known", i, word)
		}
	}
	return n.checkPodAddresses()
}

// checkPodAddresses rejects prefixes that no pod may use, or that are the network's own.
func (n Network) checkPodAddresses() error {
	if len(n.PodAddresses) == 0 {
		return nil
	}
	if n.Mode.OtherVendor() {
		return invalid("leave it out: the other vendor routes to pods",
			"network.podAddresses has no effect with network.mode %q", n.Mode)
	}
	if n.Mode == ModeCluster && !slices.Contains(n.Permit, "ipAddrsNoIpam") && !slices.Contains(n.Permit, "floatingIPs") {
		return invalid("add ipAddrsNoIpam or floatingIPs to network.permit",
			"network.podAddresses has no effect: pods may not use such addresses")
	}
	own := slices.Concat(n.PodCIDRs, n.ClusterCIDRs)
	for _, p := range n.Pools {
		own = append(own, p.CIDR)
	}
	for i, p := range n.PodAddresses {
		if a := p.Addr(); a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() {
			return invalid("a unicast prefix", "network.podAddresses[%d] %s has no addresses of pods", i, p)
		}
		for _, o := range own {
			if p.Overlaps(o) {
				return invalid("a prefix outside of the network's own",
					"network.podAddresses[%d] %s overlaps %s, a prefix of the network", i, p, o)
			}
		}
	}
	return nil
}
