// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weft-net/weft/internal/vm/kubevirt"
)

const (
	maxPort   = 65535
	maxRanges = 10
)

// ports checks the ports that are mapped to the guest. On secondary networks they have no effect and are not checked.
func (c *checker) ports(p *field.Path, nic kubevirt.Interface, network kubevirt.Network) {
	if network.Pod == nil {
		return
	}
	names := map[string]bool{}
	for i, port := range nic.Ports {
		p := p.Child("ports").Index(i)
		if port.Port <= 0 || port.Port > maxPort {
			c.invalid(p.Child("port"), "1 to 65535", "%d is not a port", port.Port)
		}
		if port.Protocol != "" && port.Protocol != "TCP" && port.Protocol != "UDP" {
			c.invalid(p.Child("protocol"), "TCP or UDP", "%q is not understood", port.Protocol)
		}
		if port.Name == "" {
			continue
		}
		if why := validation.IsValidPortName(port.Name); len(why) > 0 {
			c.invalid(p.Child("name"), "", "%q is not a valid port name: %s", port.Name, strings.Join(why, ", "))
		}
		if names[port.Name] {
			c.invalid(p.Child("name"), "", "duplicate port name %q", port.Name)
		}
		names[port.Name] = true
	}
	if len(nic.PortRanges) == 0 {
		return
	}
	p = p.Child("portRanges")
	if nic.Masquerade == nil {
		c.invalid(p, "", "only the masquerade binding supports them")
	}
	if len(nic.Ports) > 0 {
		c.invalid(p, "a port is a range with one start and end", "the interface has both ports and portRanges")
	}
	if len(nic.PortRanges) > maxRanges {
		c.invalid(p, "", "%d ranges; the maximum is %d", len(nic.PortRanges), maxRanges)
		return
	}
	c.ranges(p, nic.PortRanges)
}

func (c *checker) ranges(p *field.Path, ranges []kubevirt.PortRange) {
	for i, r := range ranges {
		p := p.Index(i)
		switch {
		case r.Protocol != "TCP" && r.Protocol != "UDP":
			c.invalid(p.Child("protocol"), "TCP or UDP", "%q is not understood", r.Protocol)
		case r.Start <= 0 || r.Start > maxPort:
			c.invalid(p.Child("start"), "1 to 65535", "%d is not a port", r.Start)
		case r.End <= 0 || r.End > maxPort:
			c.invalid(p.Child("end"), "1 to 65535", "%d is not a port", r.End)
		case r.Start > r.End:
			c.invalid(p.Child("start"), "", "%d is greater than the end, %d", r.Start, r.End)
		}
		for _, o := range ranges[:i] {
			if o.Protocol == r.Protocol && o.Start <= r.End && r.Start <= o.End {
				c.invalid(p, "", "%s %d-%d overlaps %d-%d", r.Protocol, r.Start, r.End, o.Start, o.End)
			}
		}
	}
}

// dhcp checks the DHCP options.
func (c *checker) dhcp(p *field.Path, nic kubevirt.Interface) {
	if nic.DHCPOptions == nil {
		return
	}
	p = p.Child("dhcpOptions")
	for i, server := range nic.DHCPOptions.NTPServers {
		if ip, err := netip.ParseAddr(server); err != nil || !ip.Is4() {
			c.invalid(p.Child("ntpServers").Index(i), "the DHCP option has IPv4 addresses", "%q is not an IPv4 address", server)
		}
	}
	const longest = 255
	for _, o := range [][2]string{
		{"bootFileName", nic.DHCPOptions.BootFileName}, {"tftpServerName", nic.DHCPOptions.TFTPServerName},
	} {
		if name, value := o[0], o[1]; len(value) > longest {
			c.invalid(p.Child(name), "", "%d bytes; the maximum is %d", len(value), longest)
		}
	}
	seen := map[int]bool{}
	for i, o := range nic.DHCPOptions.PrivateOptions {
		p := p.Child("privateOptions").Index(i)
		switch {
		case o.Option < 224 || o.Option > 254:
			c.invalid(p.Child("option"), "224 to 254", "%d is not a private option", o.Option)
		case seen[o.Option]:
			c.invalid(p.Child("option"), "", "duplicate option %d", o.Option)
		case len(o.Value) > longest:
			c.invalid(p.Child("value"), "", "%d bytes; the maximum is %d", len(o.Value), longest)
		}
		seen[o.Option] = true
	}
}
