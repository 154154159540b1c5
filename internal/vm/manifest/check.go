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

// checker checks a VM's interfaces and networks and collects errors.
type checker struct {
	spec    *kubevirt.VirtualMachineInstanceSpec
	path    *field.Path
	options Options
	errs    []*model.Error
}

// invalid adds an error for an invalid field.
func (c *checker) invalid(p *field.Path, hint, format string, args ...any) {
	c.errs = append(c.errs, &model.Error{Code: model.CodeInvalidConf, Msg: at(p, format, args...), Hint: hint})
}

// unsupported adds an error for a feature of KubeVirt that weft does not support.
func (c *checker) unsupported(p *field.Path, hint, format string, args ...any) {
	c.errs = append(c.errs, &model.Error{Code: model.CodeUnsupportedField, Msg: at(p, format, args...), Hint: hint})
}

// check returns one error with all messages in order; its code and hint are the first one's.
func (c *checker) check() error {
	c.hostnames()
	c.networks()
	c.interfaces()
	if len(c.errs) == 0 {
		return nil
	}
	out := *c.errs[0]
	for _, f := range c.errs[1:] {
		out.Msg += "; " + f.Msg
	}
	return &out
}

// hostnames checks the guest's hostname and subdomain.
func (c *checker) hostnames() {
	if name := c.spec.Hostname; name != "" {
		if why := validation.IsDNS1123Label(name); len(why) > 0 {
			c.invalid(c.path.Child("hostname"), "", "%q is not a valid hostname: %s", name, strings.Join(why, ", "))
		}
	}
	if name := c.spec.Subdomain; name != "" {
		if why := validation.IsDNS1123Subdomain(name); len(why) > 0 {
			c.invalid(c.path.Child("subdomain"), "", "%q is not a valid subdomain: %s", name, strings.Join(why, ", "))
		}
	}
}

func (c *checker) nics() []kubevirt.Interface { return c.spec.Domain.Devices.Interfaces }

// nicPath returns the path of an interface.
func (c *checker) nicPath(i int) *field.Path {
	return c.path.Child("domain", "devices", "interfaces").Index(i)
}

func (c *checker) networkPath(i int) *field.Path { return c.path.Child("networks").Index(i) }

// networks checks each network, and that at most one is the pod's default network.
func (c *checker) networks() {
	first, seen := -1, map[string]bool{}
	for i, n := range c.spec.Networks {
		p := c.networkPath(i)
		if seen[n.Name] {
			c.invalid(p.Child("name"), "", "duplicate network name %q", n.Name)
		}
		seen[n.Name] = true
		c.source(p, n)
		if primary(n) {
			if first >= 0 {
				c.invalid(p, "a pod has one default network", "%s and %s are both the pod's default network",
					c.spec.Networks[first].Name, n.Name)
			}
			first = i
		}
		if !slices.ContainsFunc(c.nics(), func(nic kubevirt.Interface) bool { return nic.Name == n.Name }) {
			c.invalid(p.Child("name"), "each network needs an interface of its name", "no interface is named %q", n.Name)
		}
	}
}

// source checks the source of a network.
func (c *checker) source(p *field.Path, n kubevirt.Network) {
	count := 0
	for _, is := range []bool{n.Pod != nil, n.Multus != nil, n.ResourceClaim != nil} {
		if is {
			count++
		}
	}
	switch {
	case count == 0:
		c.invalid(p, "pod: {} or multus: {networkName: NAME}", "network %q has no source", n.Name)
	case count > 1:
		c.invalid(p, "pod or multus", "network %q has several sources", n.Name)
	case n.ResourceClaim != nil:
		c.unsupported(p.Child("resourceClaim"), "use a multus network", "networks from resource claims are not supported")
	case n.Multus != nil && n.Multus.NetworkName == "":
		c.invalid(p.Child("multus", "networkName"), "the name of a NetworkAttachmentDefinition", "it is empty")
	case n.Pod != nil:
		c.subnet(p.Child("pod", "vmNetworkCIDR"), n.Pod.VMNetworkCIDR, false)
		c.subnet(p.Child("pod", "vmIPv6NetworkCIDR"), n.Pod.VMIPv6NetworkCIDR, true)
	}
}

// interfaces checks each interface, and that interfaces do not conflict.
func (c *checker) interfaces() {
	seen := usedValues{
		names: map[string]int{}, macs: map[string]int{}, bootOrders: c.diskBootOrders(), acpiIndexes: map[int]int{},
		pciAddresses: map[string]int{},
	}
	masquerades := -1
	for i, nic := range c.nics() {
		p := c.nicPath(i)
		c.name(p, nic, seen, i)
		network, known := c.networkOf(nic.Name)
		c.binding(p, nic, network, known)
		if nic.Masquerade != nil {
			if masquerades >= 0 {
				c.invalid(p.Child("masquerade"), "", "interface %q already has the masquerade binding; only one may have it",
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

// name checks an interface's name, which must be that of a network.
func (c *checker) name(p *field.Path, nic kubevirt.Interface, seen usedValues, i int) {
	p = p.Child("name")
	if nic.Name == "" || strings.Trim(nic.Name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		c.invalid(p, "letters, digits, '-' and '_'", "%q is not a valid interface name", nic.Name)
	}
	if _, twice := seen.names[nic.Name]; twice {
		c.invalid(p, "each interface needs a network of its own", "duplicate interface name %q", nic.Name)
	}
	seen.names[nic.Name] = i
	if _, known := c.networkOf(nic.Name); !known {
		c.invalid(p, "each interface needs a network of its name", "no network is named %q", nic.Name)
	}
}

// link checks the requested state.
func (c *checker) link(p *field.Path, nic kubevirt.Interface, network kubevirt.Network) {
	p = p.Child("state")
	switch nic.State {
	case "":
	case kubevirt.InterfaceStateLinkUp, kubevirt.InterfaceStateLinkDown:
		if nic.SRIOV != nil {
			c.invalid(p, "leave it out", "%q: the link of an SR-IOV device cannot be set", nic.State)
		}
	case kubevirt.InterfaceStateAbsent:
		switch {
		case nic.Bridge == nil:
			c.invalid(p, "only an interface with the bridge binding can be unplugged", "%q is not supported for this binding", nic.State)
		case primary(network):
			c.invalid(p, "", "%q: the pod's default network cannot be unplugged", nic.State)
		}
	default:
		c.invalid(p, "up, down or absent", "%q is not an interface state", nic.State)
	}
}
