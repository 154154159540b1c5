// SPDX-License-Identifier: Apache-2.0

package flannel

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// ErrIncomplete is wrapped by the error about a subnet.env that lacks what must be in it: perhaps it is just being
// written.
var ErrIncomplete = errors.New("it is incomplete")

// SubnetEnv is the content of /run/flannel/subnet.env, which flanneld writes for the CNI plugin.
type SubnetEnv struct {
	// Networks are the cluster's, IPv4 before IPv6; one a family but where a flanneld of several cluster CIDRs wrote them.
	Networks []netip.Prefix
	// Subnet and IPv6Subnet are the node's with the address of its own end in them, 10.42.3.1/24; invalid where the family
	// is off.
	Subnet     netip.Prefix
	IPv6Subnet netip.Prefix
	MTU        int
	// IPMasq: flanneld masquerades, so the CNI plugins need not.
	IPMasq bool
}

// String returns the file as flanneld writes it: each family's two lines only where the family is on.
func (e SubnetEnv) String() string {
	var b strings.Builder
	family := func(network, subnet string, node netip.Prefix, is func(netip.Addr) bool) {
		if !node.IsValid() {
			return
		}
		var all []string
		for _, n := range e.Networks {
			if is(n.Addr()) {
				all = append(all, n.String())
			}
		}
		fmt.Fprintf(&b, "%s=%s\n%s=%s\n", network, strings.Join(all, ","), subnet, node)
	}
	family("FLANNEL_NETWORK", "FLANNEL_SUBNET", e.Subnet, netip.Addr.Is4)
	family("FLANNEL_IPV6_NETWORK", "FLANNEL_IPV6_SUBNET", e.IPv6Subnet, netip.Addr.Is6)
	fmt.Fprintf(&b, "FLANNEL_MTU=%d\nFLANNEL_IPMASQ=%t\n", e.MTU, e.IPMasq)
	return b.String()
}

// SubnetEnv returns the file of a node with these prefixes: the node has the first address of each. A prefix outside of
// the network of its family is an error, as is a node without any of a family that is on.
func (c NetConf) SubnetEnv(node []netip.Prefix, mtu int, masquerades bool) (SubnetEnv, error) {
	e := SubnetEnv{Networks: c.Networks(), MTU: mtu, IPMasq: masquerades}
	for _, cidr := range node {
		network, name, own := c.IPv6Network, "IPv6Network", &e.IPv6Subnet
		if cidr.Addr().Is4() {
			network, name, own = c.Network, "Network", &e.Subnet
		}
		if !slices.Contains(e.Networks, network) { // that family is off
			continue
		}
		if network.Bits() > cidr.Bits() || !network.Contains(cidr.Addr()) {
			return e, model.Errorf(
				model.CodeInvalidConf, "give the controller manager the --cluster-cidr that net-conf.json has",
				"podCIDR %s is not in %s %s", cidr, name, network,
			)
		}
		*own = netip.PrefixFrom(cidr.Masked().Addr().Next(), cidr.Bits())
	}
	if !e.Subnet.IsValid() && !e.IPv6Subnet.IsValid() {
		return e, model.Errorf(
			model.CodeTryAgain, "give the Node object podCIDRs (kube-controller-manager --allocate-node-cidrs)",
			"the node has no podCIDR of a family that net-conf.json has on",
		)
	}
	return e, nil
}

// ParseSubnetEnv decodes the file. Unknown keys are ignored.
func ParseSubnetEnv(text []byte) (SubnetEnv, error) {
	var e SubnetEnv
	var v6 []netip.Prefix
	said := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		key, value, _ := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		var err error
		switch key {
		case "FLANNEL_NETWORK":
			e.Networks, err = networks(key, value, netip.Addr.Is4)
		case "FLANNEL_IPV6_NETWORK":
			v6, err = networks(key, value, netip.Addr.Is6)
		case "FLANNEL_SUBNET":
			e.Subnet, err = prefix(key, value, netip.Addr.Is4)
		case "FLANNEL_IPV6_SUBNET":
			e.IPv6Subnet, err = prefix(key, value, netip.Addr.Is6)
		case "FLANNEL_MTU":
			e.MTU, err = mtu(key, value)
		case "FLANNEL_IPMASQ":
			e.IPMasq = value == "true" // what else it may be means no, as for the CNI plugin of flannel
		}
		if err != nil {
			return e, err
		}
		said[key] = true
	}
	if err := lines.Err(); err != nil {
		return e, fmt.Errorf("subnet.env: %w", err)
	}
	e.Networks = append(e.Networks, v6...)
	return e, e.complete(said)
}

// complete returns an error if a key is missing.
func (e SubnetEnv) complete(said map[string]bool) error {
	var missing []string
	need := func(keys ...string) {
		for _, k := range keys {
			if said[k] {
				return
			}
		}
		missing = append(missing, strings.Join(keys, " or "))
	}
	need("FLANNEL_NETWORK", "FLANNEL_IPV6_NETWORK")
	need("FLANNEL_SUBNET", "FLANNEL_IPV6_SUBNET")
	need("FLANNEL_MTU")
	need("FLANNEL_IPMASQ")
	if len(missing) > 0 {
		return fmt.Errorf("%s is missing: %w", strings.Join(missing, ", "), ErrIncomplete)
	}
	return nil
}

func networks(key, value string, is func(netip.Addr) bool) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for one := range strings.SplitSeq(value, ",") {
		p, err := prefix(key, one, is)
		if err != nil {
			return nil, err
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

func prefix(key, value string, is func(netip.Addr) bool) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(value)
	if err != nil {
		return p, fmt.Errorf("%s %q is no prefix", key, value)
	}
	if !is(p.Addr()) {
		return p, fmt.Errorf("%s %q is of the other family", key, value)
	}
	return p, nil
}

func mtu(key, value string) (int, error) {
	n, err := strconv.ParseUint(value, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%s %q is no number from 0 to 65535", key, value)
	}
	return int(n), nil
}
