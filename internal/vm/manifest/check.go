// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/kubevirt"
)

// checker goes over a machine's interfaces and networks and notes what is wrong.
type checker struct {
	spec    *kubevirt.VirtualMachineInstanceSpec
	path    *field.Path
	options Options
	faults  []*model.Fault
}

// wrong notes a fault of the manifest.
func (c *checker) wrong(p *field.Path, hint, format string, args ...any) {
	c.faults = append(c.faults, &model.Fault{Code: model.CodeInvalidConf, Msg: at(p, format, args...), Hint: hint})
}

// unsupported notes something that KubeVirt has, or had, and weft has not.
func (c *checker) unsupported(p *field.Path, hint, format string, args ...any) {
	c.faults = append(c.faults, &model.Fault{Code: model.CodeUnsupportedField, Msg: at(p, format, args...), Hint: hint})
}

// check is nil when all is well. All faults are told in one, in the order in which they were found; the first one's
// code and hint count.
func (c *checker) check() error {
	c.hostnames()
	c.networks()
	c.interfaces()
	if len(c.faults) == 0 {
		return nil
	}
	out := *c.faults[0]
	for _, f := range c.faults[1:] {
		out.Msg += "; " + f.Msg
	}
	return &out
}

// hostnames checks what the guest is told to be called.
func (c *checker) hostnames() {
	if name := c.spec.Hostname; name != "" {
		if why := validation.IsDNS1123Label(name); len(why) > 0 {
			c.wrong(c.path.Child("hostname"), "", "%q cannot be a host's name: %s", name, strings.Join(why, ", "))
		}
	}
	if name := c.spec.Subdomain; name != "" {
		if why := validation.IsDNS1123Subdomain(name); len(why) > 0 {
			c.wrong(c.path.Child("subdomain"), "", "%q cannot be a domain's name: %s", name, strings.Join(why, ", "))
		}
	}
}

func (c *checker) nics() []kubevirt.Interface { return c.spec.Domain.Devices.Interfaces }

// nicPath is the path of an interface.
func (c *checker) nicPath(i int) *field.Path {
	return c.path.Child("domain", "devices", "interfaces").Index(i)
}

func (c *checker) networkPath(i int) *field.Path { return c.path.Child("networks").Index(i) }

// networks checks each network, and that the first one of the pod is one.
func (c *checker) networks() {
	first, seen := -1, map[string]bool{}
	for i, n := range c.spec.Networks {
		p := c.networkPath(i)
		if seen[n.Name] {
			c.wrong(p.Child("name"), "", "a network of the name %q stands before it", n.Name)
		}
		seen[n.Name] = true
		c.source(p, n)
		if primary(n) {
			if first >= 0 {
				c.wrong(p, "one network of a pod is its first", "%s and %s are both the pod's default network",
					c.spec.Networks[first].Name, n.Name)
			}
			first = i
		}
		if !slices.ContainsFunc(c.nics(), func(nic kubevirt.Interface) bool { return nic.Name == n.Name }) {
			c.wrong(p.Child("name"), "each network needs an interface of its name", "no interface is named %q", n.Name)
		}
	}
}

// source checks where a network comes from.
func (c *checker) source(p *field.Path, n kubevirt.Network) {
	count := 0
	for _, is := range []bool{n.Pod != nil, n.Multus != nil, n.ResourceClaim != nil} {
		if is {
			count++
		}
	}
	switch {
	case count == 0:
		c.wrong(p, "pod: {} or multus: {networkName: NAME}", "network %q has no source", n.Name)
	case count > 1:
		c.wrong(p, "pod or multus", "network %q has several sources", n.Name)
	case n.ResourceClaim != nil:
		c.unsupported(p.Child("resourceClaim"), "take a multus network", "networks from resource claims are not supported")
	case n.Multus != nil && n.Multus.NetworkName == "":
		c.wrong(p.Child("multus", "networkName"), "the name of a NetworkAttachmentDefinition", "it is empty")
	case n.Pod != nil:
		c.subnet(p.Child("pod", "vmNetworkCIDR"), n.Pod.VMNetworkCIDR, false)
		c.subnet(p.Child("pod", "vmIPv6NetworkCIDR"), n.Pod.VMIPv6NetworkCIDR, true)
	}
}

// interfaces checks each interface, and what two of them cannot share.
func (c *checker) interfaces() {
	seen := taken{
		names: map[string]int{}, macs: map[string]int{}, boots: c.diskBoots(), indexes: map[int]int{},
		addresses: map[string]int{},
	}
	masquerades := -1
	for i, nic := range c.nics() {
		p := c.nicPath(i)
		c.name(p, nic, seen, i)
		network, known := c.networkOf(nic.Name)
		c.binding(p, nic, network, known)
		if nic.Masquerade != nil {
			if masquerades >= 0 {
				c.wrong(p.Child("masquerade"), "", "interface %q is bound by masquerade already; one can be",
					c.nics()[masquerades].Name)
			}
			masquerades = i
		}
		c.device(p, nic, seen, i)
		c.link(p, nic, network)
		c.ports(p, nic, network)
		c.dhcp(p, nic)
	}
}

func (c *checker) networkOf(name string) (kubevirt.Network, bool) {
	for _, n := range c.spec.Networks {
		if n.Name == name {
			return n, true
		}
	}
	return kubevirt.Network{}, false
}

// name checks an interface's name, which is its network's.
func (c *checker) name(p *field.Path, nic kubevirt.Interface, seen taken, i int) {
	p = p.Child("name")
	if nic.Name == "" || strings.Trim(nic.Name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		c.wrong(p, "letters, digits, '-' and '_'", "%q cannot be an interface's name", nic.Name)
	}
	if _, twice := seen.names[nic.Name]; twice {
		c.wrong(p, "each interface needs a network of its own", "an interface of the name %q stands before it", nic.Name)
	}
	seen.names[nic.Name] = i
	if _, known := c.networkOf(nic.Name); !known {
		c.wrong(p, "each interface needs a network of its name", "no network is named %q", nic.Name)
	}
}

// link checks the wished state.
func (c *checker) link(p *field.Path, nic kubevirt.Interface, network kubevirt.Network) {
	p = p.Child("state")
	switch nic.State {
	case "":
	case kubevirt.InterfaceStateLinkUp, kubevirt.InterfaceStateLinkDown:
		if nic.SRIOV != nil {
			c.wrong(p, "leave it out", "%q: the link of a device of the guest's own cannot be set", nic.State)
		}
	case kubevirt.InterfaceStateAbsent:
		switch {
		case nic.Bridge == nil:
			c.wrong(p, "only an interface bound by bridge can be taken away", "%q is not possible here", nic.State)
		case primary(network):
			c.wrong(p, "", "%q: the pod's default network cannot be taken away", nic.State)
		}
	default:
		c.wrong(p, "up, down or absent", "%q is no state of an interface", nic.State)
	}
}
