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
	mostPort   = 65535
	mostRanges = 10
)

// ports checks which ports of the pod lead to the guest. On other networks than the pod's they mean nothing, and may be
// anything.
func (c *checker) ports(p *field.Path, nic kubevirt.Interface, network kubevirt.Network) {
	if network.Pod == nil {
		return
	}
	names := map[string]bool{}
	for i, port := range nic.Ports {
		p := p.Child("ports").Index(i)
		if port.Port <= 0 || port.Port > mostPort {
			c.wrong(p.Child("port"), "1 to 65535", "%d is no port", port.Port)
		}
		if port.Protocol != "" && port.Protocol != "TCP" && port.Protocol != "UDP" {
			c.wrong(p.Child("protocol"), "TCP or UDP", "%q is not understood", port.Protocol)
		}
		if port.Name == "" {
			continue
		}
		if why := validation.IsValidPortName(port.Name); len(why) > 0 {
			c.wrong(p.Child("name"), "", "%q cannot be a port's name: %s", port.Name, strings.Join(why, ", "))
		}
		if names[port.Name] {
			c.wrong(p.Child("name"), "", "a port of the name %q stands before it", port.Name)
		}
		names[port.Name] = true
	}
	if len(nic.PortRanges) == 0 {
		return
	}
	p = p.Child("portRanges")
	if nic.Masquerade == nil {
		c.wrong(p, "", "only an interface bound by masquerade has them")
	}
	if len(nic.Ports) > 0 {
		c.wrong(p, "a port is a range with one start and end", "the interface has ports beside them")
	}
	if len(nic.PortRanges) > mostRanges {
		c.wrong(p, "", "%d of them, at most %d can be", len(nic.PortRanges), mostRanges)
		return
	}
	c.ranges(p, nic.PortRanges)
}

func (c *checker) ranges(p *field.Path, ranges []kubevirt.PortRange) {
	for i, r := range ranges {
		p := p.Index(i)
		switch {
		case r.Protocol != "TCP" && r.Protocol != "UDP":
			c.wrong(p.Child("protocol"), "TCP or UDP", "%q is not understood", r.Protocol)
		case r.Start <= 0 || r.Start > mostPort:
			c.wrong(p.Child("start"), "1 to 65535", "%d is no port", r.Start)
		case r.End <= 0 || r.End > mostPort:
			c.wrong(p.Child("end"), "1 to 65535", "%d is no port", r.End)
		case r.Start > r.End:
			c.wrong(p.Child("start"), "", "%d is behind the end, %d", r.Start, r.End)
		}
		for _, o := range ranges[:i] {
			if o.Protocol == r.Protocol && o.Start <= r.End && r.Start <= o.End {
				c.wrong(p, "", "%s %d-%d overlaps %d-%d", r.Protocol, r.Start, r.End, o.Start, o.End)
			}
		}
	}
}

// dhcp checks the options that the manifest chooses.
func (c *checker) dhcp(p *field.Path, nic kubevirt.Interface) {
	if nic.DHCPOptions == nil {
		return
	}
	p = p.Child("dhcpOptions")
	for i, server := range nic.DHCPOptions.NTPServers {
		if ip, err := netip.ParseAddr(server); err != nil || !ip.Is4() {
			c.wrong(p.Child("ntpServers").Index(i), "DHCP tells IPv4 addresses", "%q is no IPv4 address", server)
		}
	}
	const longest = 255
	for _, o := range [][2]string{
		{"bootFileName", nic.DHCPOptions.BootFileName}, {"tftpServerName", nic.DHCPOptions.TFTPServerName},
	} {
		if name, value := o[0], o[1]; len(value) > longest {
			c.wrong(p.Child(name), "", "%d bytes, an option holds %d", len(value), longest)
		}
	}
	seen := map[int]bool{}
	for i, o := range nic.DHCPOptions.PrivateOptions {
		p := p.Child("privateOptions").Index(i)
		switch {
		case o.Option < 224 || o.Option > 254:
			c.wrong(p.Child("option"), "224 to 254", "%d is no private option", o.Option)
		case seen[o.Option]:
			c.wrong(p.Child("option"), "", "%d stands before it", o.Option)
		case len(o.Value) > longest:
			c.wrong(p.Child("value"), "", "%d bytes, an option holds %d", len(o.Value), longest)
		}
		seen[o.Option] = true
	}
}
