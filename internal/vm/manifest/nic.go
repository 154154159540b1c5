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

// nic converts a checked interface to the model.
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

// ports returns the ports of the pod that are mapped to the guest.
func ports(from kubevirt.Interface) (out []model.VMPortRange) {
	for _, p := range from.Ports {
		out = append(out, model.VMPortRange{Protocol: protocol(p.Protocol), First: uint16(p.Port), Last: uint16(p.Port)}) //nolint:gosec // checked
	}
	for _, p := range from.PortRanges {
		out = append(out, model.VMPortRange{Protocol: protocol(p.Protocol), First: uint16(p.Start), Last: uint16(p.End)}) //nolint:gosec // checked
	}
	return out
}

func protocol(s string) string {
	if s == "" {
		return "tcp"
	}
	return strings.ToLower(s)
}

// binding returns an interface's binding, and the binding plugin.
func binding(from kubevirt.Interface, o Options) (how model.VMBinding, plugin string) {
	switch {
	case from.Masquerade != nil:
		return model.VMMasquerade, ""
	case from.SRIOV != nil:
		return model.VMSRIOV, ""
	case from.DeprecatedMacvtap != nil:
		return model.VMMacvtap, ""
	case from.Binding != nil:
		return model.VMBinding(o.attachmentType(from.Binding.Name)), from.Binding.Name
	}
	return model.VMBridge, ""
}

// directPlugin is weft's own binding plugin.
const directPlugin = "weft-direct"

// attachmentType returns the domainAttachmentType of a binding plugin; "" if the plugin is not known.
func (o Options) attachmentType(plugin string) string {
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

// network returns the network of an interface.
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

// primary reports whether a network is the pod's default network.
func primary(n kubevirt.Network) bool { return n.Pod != nil || n.Multus != nil && n.Multus.Default }
