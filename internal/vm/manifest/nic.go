// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/kubevirt"
)

// nic turns an interface that has been checked into the model's words.
func (d document) nic(i int, o Options) model.VMInterface {
	from := d.instance.Domain.Devices.Interfaces[i]
	nic := model.VMInterface{
		Name: from.Name, Index: i, Model: from.Model, Network: d.network(from.Name), PCIAddress: from.PciAddress,
		ACPIIndex: uint(max(0, from.ACPIIndex)),
		Down:      from.State == kubevirt.InterfaceStateLinkDown, Absent: from.State == kubevirt.InterfaceStateAbsent,
	}
	nic.Binding, nic.Plugin = binding(from, o)
	if nic.Model == "" {
		nic.Model = kubevirt.VirtIO
	}
	if hw, err := net.ParseMAC(from.MacAddress); err == nil {
		nic.MAC = hw.String()
	}
	if from.BootOrder != nil {
		nic.BootOrder = *from.BootOrder
	}
	if nic.Network.Pod {
		nic.Ports = ports(from)
	}
	if dhcp := from.DHCPOptions; dhcp != nil {
		nic.DHCP.BootFileName, nic.DHCP.TFTPServerName = dhcp.BootFileName, dhcp.TFTPServerName
		for _, server := range dhcp.NTPServers {
			nic.DHCP.NTPServers = append(nic.DHCP.NTPServers, netip.MustParseAddr(server))
		}
		for _, p := range dhcp.PrivateOptions {
			nic.DHCP.Private = append(nic.DHCP.Private, model.VMDHCPOption{Option: uint8(p.Option), Value: p.Value}) //nolint:gosec // checked
		}
	}
	for _, s := range d.status.Interfaces {
		if s.Name == from.Name {
			nic.PodLink = s.PodInterfaceName
		}
	}
	return nic
}

// ports are those of the pod that lead to the guest.
func ports(from kubevirt.Interface) (out []model.VMPorts) {
	for _, p := range from.Ports {
		out = append(out, model.VMPorts{Protocol: protocol(p.Protocol), First: uint16(p.Port), Last: uint16(p.Port)}) //nolint:gosec // checked
	}
	for _, p := range from.PortRanges {
		out = append(out, model.VMPorts{Protocol: protocol(p.Protocol), First: uint16(p.Start), Last: uint16(p.End)}) //nolint:gosec // checked
	}
	return out
}

func protocol(s string) string {
	if s == "" {
		return "tcp"
	}
	return strings.ToLower(s)
}

// binding is how an interface is bound, and by which plugin.
func binding(from kubevirt.Interface, o Options) (how model.VMBinding, plugin string) {
	switch {
	case from.Masquerade != nil:
		return model.VMMasquerade, ""
	case from.SRIOV != nil:
		return model.VMSRIOV, ""
	case from.DeprecatedMacvtap != nil:
		return model.VMMacvtap, ""
	case from.Binding != nil:
		return model.VMBinding(o.attachment(from.Binding.Name)), from.Binding.Name
	}
	return model.VMBridge, ""
}

// directPlugin is the binding plugin of weft's own.
const directPlugin = "weft-direct"

// attachment is how a binding plugin's interface reaches the guest; "" when the plugin is not known.
func (o Options) attachment(plugin string) string {
	if how, ok := o.Bindings[plugin]; ok {
		return how
	}
	switch plugin {
	case string(model.VMMacvtap):
		return plugin
	case directPlugin:
		return string(model.VMDirect)
	}
	return ""
}

// network is the network of an interface.
func (d document) network(name string) model.VMNetwork {
	i := slices.IndexFunc(d.instance.Networks, func(n kubevirt.Network) bool { return n.Name == name })
	from := d.instance.Networks[i]
	n := model.VMNetwork{Name: name, Index: i, Primary: primary(from)}
	if m := from.Multus; m != nil {
		n.Definition = m.NetworkName
	}
	if p := from.Pod; p != nil {
		n.Pod = true
		n.CIDR4, n.CIDR6 = netip.MustParsePrefix("10.0.2.0/24"), netip.MustParsePrefix("fd10:0:2::/120")
		if p.VMNetworkCIDR != "" {
			n.CIDR4 = netip.MustParsePrefix(p.VMNetworkCIDR).Masked()
		}
		if p.VMIPv6NetworkCIDR != "" {
			n.CIDR6 = netip.MustParsePrefix(p.VMIPv6NetworkCIDR).Masked()
		}
	}
	return n
}

// primary tells whether a network is the pod's first one.
func primary(n kubevirt.Network) bool { return n.Pod != nil || n.Multus != nil && n.Multus.Default }
